"""``fglaudit new``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fglaudit.commands.options import given_path
from fglaudit.interruption import interrupt


def new(
    kind: Annotated[str, typer.Argument(help="defense, attack or protocol.")],
    name: Annotated[str, typer.Argument(help="Of the plugin, e.g. my-defense.")],
    folder: Annotated[Path, typer.Option(parser=given_path, metavar="PATH", help="Where to write.")] = Path(),
) -> None:
    """Write a plugin that runs as it is, and its test, to start from."""
    from fglaudit.scaffold import FIRST_VERDICT, class_name, scaffold

    interrupt()
    written = scaffold(kind, name, folder)
    for path in written:
        print(path)
    plugin, test = shlex.quote(f"{written[0]}:{class_name(name)}"), shlex.quote(str(written[1]))
    print(f"next: fglaudit check {plugin} --quick   and   python -m pytest {test}")
    if verdict := FIRST_VERDICT.get(kind):
        print(verdict)
