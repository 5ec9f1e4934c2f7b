"""Options of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fglaudit.errors import FglauditError


def given_path(text: str | Path) -> Path:
    """Return ``text`` as a path; an empty one, as a shell makes it of a variable that is not set, would be the working
    folder."""
    if not str(text):
        raise typer.BadParameter("a path must not be empty; write . for the working folder")
    return Path(text)


RootOption = Annotated[
    Path | None,
    typer.Option(
        parser=given_path, metavar="PATH", help="Folder with raw data sets; else FGLAUDIT_DATA, else ../shared/data."
    ),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def refuse_less_than_one(option: str, number: int | None, fix: str) -> None:
    """Raise :class:`FglauditError` if ``number`` was given for ``option`` and is below 1."""
    if number is not None and number < 1:
        raise FglauditError(f"{option} must be 1 or more; got {number}; {fix}")
