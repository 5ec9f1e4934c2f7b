"""Options of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RootOption = Annotated[
    Path | None, typer.Option(help="Folder with raw data sets; else FGLAUDIT_DATA, else ../shared/data.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
