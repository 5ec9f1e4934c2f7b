"""``fglaudit compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fglaudit.commands.options import given_path
from fglaudit.errors import printable
from fglaudit.interruption import interrupt


def compare(
    first: Annotated[Path, typer.Argument(parser=given_path, metavar="A", help="Folder of a run.")],
    second: Annotated[Path, typer.Argument(parser=given_path, metavar="B", help="Folder of another run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say what changed from run A to run B: better, worse or within noise, per observer and quantity."""
    from fglaudit.reports.compare import compare_folders
    from fglaudit.reports.formats.comparison import comparison_text

    interrupt()
    found = compare_folders(first, second)
    print(
        json.dumps(found.to_json(), indent=2)
        if as_json
        else "\n".join(map(printable, comparison_text(found).splitlines()))
    )
