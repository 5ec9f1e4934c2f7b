"""Parts of pages that a command writes anew."""

from __future__ import annotations

from pathlib import Path

from fglaudit.files.own import write_atomic


def write_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what stands between the two ``marks`` of ``page``, each a line, by an empty line and ``text``."""
    before, rest = page.read_text().split(marks[0])
    write_atomic(page, f"{before}{marks[0]}\n{text}{marks[1]}{rest.split(marks[1])[1]}")
