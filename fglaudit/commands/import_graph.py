"""``fglaudit import``."""

from __future__ import annotations

from typing import Annotated

import typer

from fglaudit.errors import printable
from fglaudit.interruption import interrupt


def import_graph(
    sources: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="nodes.csv edges.csv, or one .graphml, .gml, .json, .pt.")
    ],
    out: Annotated[str, typer.Option("--out", "-o", help="The .npz to write.")],
    label: Annotated[
        str | None, typer.Option(help="Attribute with the class; by default label, y, class or target.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--id", help="Column that names nodes; by default id, node, node_id or name, else the first one."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Attribute with train, val, test; by default split.")] = None,
    client: Annotated[str | None, typer.Option(help="Attribute with who holds the node; by default client.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="An attribute that is no feature (may be repeated).")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over the .npz.")] = False,
) -> None:
    """Make a graph of your own into an .npz that suites name; says what was decided on the way."""
    from fglaudit.importing.convert import import_graph as convert
    from fglaudit.importing.node_table import Choice

    interrupt()
    for line in convert(sources, out, Choice(label, split, client, tuple(drop or ())), name, replace=replace):
        print(printable(line))
