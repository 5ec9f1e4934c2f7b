"""``fglaudit check``."""

from __future__ import annotations

from typing import Annotated

import typer

from fglaudit.errors import FglauditError, printable, shown
from fglaudit.interruption import interrupt


def check(
    name: Annotated[str, typer.Argument(metavar="FILE:CLASS", help="file.py:Class, or the name of a plugin.")],
    fields: Annotated[str, typer.Option(help="Its fields as YAML, e.g. '{std: 2.0}'.")] = "{}",
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Check it on this protocol (may be repeated); by default on the first that it serves."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="No replays (a guarantee is never verified), a smaller graph, one seed, two observers."
        ),
    ] = False,
) -> None:
    """Check a plugin: does it keep the rules, and what does an audit say of it?

    Exit code 3 if its guarantee is refuted, 1 if a fault was found or features are still read."""
    from fglaudit.suite.yaml_text import read_yaml
    from fglaudit.testing.plugin import check as run_check
    from fglaudit.testing.plugin import load_plugin

    interrupt()
    values = read_yaml(fields)
    if not isinstance(values, dict):
        raise FglauditError(f"--fields takes a mapping; got {shown(values)}; write e.g. --fields '{{std: 2.0}}'")
    kind, plugin = load_plugin(name, values)
    print(f"{kind} {type(plugin).name}")
    code = 0
    for line in run_check(kind, plugin, protocols=protocol or (), quick=quick):
        print(f"  {printable(line.text)}", flush=True)
        code = int(line.code)
    if code:
        raise SystemExit(code)
