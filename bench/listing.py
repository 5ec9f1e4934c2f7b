"""What ``python -m bench`` prints: all measurements and other commands, each with how its docstring begins."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
GUARD = 'if __name__ == "__main__":'


def first_words(file: Path) -> str:
    """Return the docstring's first sentence, up to a colon, without the command that it may begin with."""
    words = " ".join((ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split())
    first = re.split(r"[.:](?:\s|$)", re.sub(r"^``[^`]*``: ", "", words))[0].replace("``", "")
    return textwrap.shorten(first[:1].upper() + first[1:], 110, placeholder=" ...")


def own_commands() -> dict[str, Path]:
    """Return the files that run as ``python -m bench.NAME``, by that name."""
    found = [path for path in sorted(FOLDER.rglob("*.py")) if GUARD in path.read_text("utf-8").splitlines()]
    names = {path: ".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in found}
    return {name.removesuffix(".__main__"): path for path, name in names.items() if name != "__main__"}


def listing(measurements: Mapping[str, Path]) -> str:
    """Return one line per command; ``measurements`` are the files of what ``python -m bench NAME`` runs."""
    own = own_commands()
    width = max(map(len, [*measurements, *own]))
    lines = ["python -m bench NAME ... (or all); options: python -m bench --help"]
    lines += [f"  {name:{width}}  {first_words(file)}" for name, file in sorted(measurements.items())]
    lines += ["", "python -m bench.NAME, each with options of its own: --help"]
    return "\n".join(lines + [f"  {name:{width}}  {first_words(file)}" for name, file in own.items()])
