"""``fglaudit data``: list, check, describe and fetch data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fglaudit.commands.options import RootOption, given_path
from fglaudit.errors import FglauditError, unknown
from fglaudit.interruption import interrupt

data_app = typer.Typer(help="List, check, describe and fetch data sets.", no_args_is_help=True)


@data_app.command("list")
def data_list(root: RootOption = None) -> None:
    """List the data sets, and whether their files are under the data root."""
    from fglaudit.datasets import dataset_names
    from fglaudit.datasets.holdings import availability
    from fglaudit.datasets.root import no_root

    folder = _data_root(root)
    states = availability(folder)
    entries = dataset_names()
    width = max(map(len, entries))
    for name, description in entries.items():
        print(f"{name:<{width}}  {states[name]:<8}  {description}")
    print(f"\ndata root: {folder.resolve() if folder else f'{no_root()}; give --root DIR or set FGLAUDIT_DATA'}")


@data_app.command("check")
def data_check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Data sets that must be there and load.")
    ] = None,
    root: RootOption = None,
) -> None:
    """Check which data sets are under the root, their checksums, and that the named ones load."""
    from fglaudit.datasets import DatasetSpec, check_root, verify_checksums
    from fglaudit.datasets.catalog import ALIASES, DESCRIPTIONS
    from fglaudit.datasets.root import CHECKSUMS, find_root

    for name in names or ():
        if name not in DESCRIPTIONS and name not in ALIASES:
            raise unknown("data set", name, DESCRIPTIONS)
    interrupt()
    folder = find_root(str(root) if root else None, (names or ["a data set"])[0])
    for name, status in check_root(folder):
        print(f"{name:<14} {status}")
    if (folder / CHECKSUMS).is_file():
        if wrong := verify_checksums(folder):
            raise FglauditError(
                f"files must match {folder / CHECKSUMS}; missing or different: {', '.join(wrong)}; get them again"
            )
        print(f"checksums      all files listed in {folder / CHECKSUMS} are as they should be")
    for name in names or ():
        graph, notes = DatasetSpec(name, root=str(folder)).load_with_notes()
        print(f"{name:<14} loads: {graph.num_nodes} nodes, {graph.edge_index.shape[1] // 2} edges")
        for note in notes:
            print(f"{'':<14} note: {note}")


@data_app.command("facts")
def data_facts(
    name: Annotated[str, typer.Argument(help="A data set, or the path of an .npz file.")],
    root: RootOption = None,
) -> None:
    """Print counts of a data set: nodes, edges, classes, homophily, kind of features, splits."""
    from fglaudit.datasets import dataset_facts
    from fglaudit.suite.entries import dataset_spec
    from fglaudit.suite.overrides import dataset_entry

    graph, notes = dataset_spec({**dataset_entry(name), **({"root": str(root)} if root else {})}).load_with_notes()
    for key, value in dataset_facts(graph).items():
        print(f"{key:<18} {value:.4g}" if isinstance(value, float) else f"{key:<18} {value}")
    for note in notes:
        print(f"note: {note}")


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="A public data set.")],
    root: Annotated[Path, typer.Option(parser=given_path, metavar="PATH", help="Folder to put the raw files into.")],
) -> None:
    """Download the raw files of a public data set, the one command that uses the network."""
    from fglaudit.datasets import fetch

    interrupt()
    print(fetch(name, root))
    print(f"use it with --root {root} or FGLAUDIT_DATA={root}")


def _data_root(root: Path | None) -> Path | None:
    from fglaudit.datasets.root import find_root

    try:
        return find_root(str(root) if root else None, "a data set")
    except FglauditError:
        if root is not None:
            raise
        return None
