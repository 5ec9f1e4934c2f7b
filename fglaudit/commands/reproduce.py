"""``fglaudit reproduce``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fglaudit.commands.options import DeviceOption, RootOption, given_path, refuse_less_than_one
from fglaudit.errors import FglauditError
from fglaudit.files.user import is_folder
from fglaudit.interruption import interrupt


def reproduce(
    table: Annotated[str, typer.Argument(help="A table such as fedgcn-table2; without one all are listed.")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Only rows on the smallest data sets, the first seed of each.")
    ] = False,
    only: Annotated[str, typer.Option(help="Rows whose label contains this text.")] = "",
    seeds: Annotated[
        int | None,
        typer.Option(help="How many of the table's own seeds, from the first on: 3 is three seeds. By default all."),
    ] = None,
    device: DeviceOption = "auto",
    root: RootOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=given_path,
            metavar="PATH",
            help="Folder of the measurements, by default runs/reproduce/TABLE; with --status its parent.",
        ),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Measure nothing: which printed figures were measured, and which miss.")
    ] = False,
) -> None:
    """Measure a table of one of the papers, ours beside theirs; the same command goes on where it was stopped."""
    refuse_less_than_one("--seeds", seeds, "leave it out for all that the table is reproduced with")
    if status:
        changed = (("--quick", quick), ("--only", only), ("--seeds", seeds), ("--device", device != "auto"))
        _show_status(table, out, [name for name, value in changed if value])
        return
    if not table:
        _list_tables()
        return
    import torch

    from fglaudit.reproduce.printing.table import markdown, write
    from fglaudit.reproduce.run import reproduce as measured
    from fglaudit.suite.overrides import data_root, pick_device

    interrupt()
    folder = out or Path("runs") / "reproduce" / table
    rows = measured(
        table, folder, quick=quick, only=only, root=str(data_root(root)) if root is not None else None, seeds=seeds,
        device=torch.device(pick_device(device)),
        announce=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    print(markdown(table, rows), end="")
    for path in write(table, rows, folder):
        print(path, file=sys.stderr)
    if not any(row.values for row in rows):
        raise FglauditError(f"at least one row of {table} must be measured; none could be: {rows[0].reason}")


def _show_status(table: str, out: Path | None, given: Sequence[str]) -> None:
    """Print which figures were measured; ``given`` are options that are for measuring."""
    from fglaudit.reproduce.status.text import status_of

    if given:
        raise FglauditError(f"--status measures nothing and shows every row; got {given[0]} too; leave it out")
    if out is not None and not is_folder(out):
        raise FglauditError(f"--out with --status is a folder of measured tables; there is no folder {out}; correct it")
    print(status_of(table, out or Path("runs") / "reproduce"), end="")


def _list_tables() -> None:
    from fglaudit.reproduce.published import TITLES

    for name, title in TITLES.items():
        print(f"{name:<19} {title}")
