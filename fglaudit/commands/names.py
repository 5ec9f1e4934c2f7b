"""``fglaudit list`` and ``fglaudit show``: what a suite can name."""

from __future__ import annotations

from typing import Annotated

import typer

from fglaudit.errors import unknown


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="protocols, attacks, defenses, servers (what a server or a client does that breaks the rules),"
            " datasets, partitions or suites; left out: how many of each."
        ),
    ] = None,
) -> None:
    """List what a suite can name."""
    from fglaudit.catalog import CATALOG

    if kind is None:
        for name, section in CATALOG.items():
            print(f"{name:<{max(map(len, CATALOG))}}  {len(section.entries()):>3}   fglaudit list {name}")
        return
    if kind not in CATALOG:
        raise unknown("kind of thing to list", kind, CATALOG)
    entries = CATALOG[kind].entries()
    width = max((len(name) for name in entries), default=0)
    for name, summary in entries.items():
        print(f"{name:<{width}}  {summary}".rstrip())


def show(name: Annotated[str, typer.Argument(help="A name that `fglaudit list` prints, or file.py:Class.")]) -> None:
    """Explain a name that `fglaudit list` prints: what it is, its fields and their defaults."""
    from fglaudit.catalog import explain

    print(explain(name))
