"""``fglaudit list`` and ``fglaudit show``: what a suite can name."""

from __future__ import annotations

from typing import Annotated

import typer

from fglaudit.errors import unknown


def _kinds(incomplete: str) -> list[str]:
    """Return the kinds of things to list that begin so."""
    from fglaudit.catalog import CATALOG

    return [kind for kind in CATALOG if kind.startswith(incomplete)]


def _names(incomplete: str) -> list[str]:
    """Return what can be shown and begins so."""
    from fglaudit.catalog import CATALOG

    names = dict.fromkeys(name for section in CATALOG.values() for name in section.entries())
    return [name for name in names if name.startswith(incomplete)]


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="protocols, attacks, defenses, servers (what a server or a client does that breaks the rules),"
            " datasets, partitions, suites, payloads (what is sent) or quantities (what attacks infer); left out: how"
            " many of each.",
            autocompletion=_kinds,
        ),
    ] = None,
) -> None:
    """List what a suite or a policy can name."""
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


def show(
    name: Annotated[
        str, typer.Argument(help="A name that `fglaudit list` prints, or file.py:Class.", autocompletion=_names)
    ],
) -> None:
    """Explain a name that `fglaudit list` prints: what it is, its fields and their defaults."""
    from fglaudit.catalog import explain, facts_allowed

    print(explain(name), flush=True)
    for line in facts_allowed(name):  # last: it takes seconds, as the attack is imported
        print(line)
