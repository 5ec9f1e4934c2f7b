"""``fglaudit check``."""

from __future__ import annotations

import sys
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
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", help="Every line, as soon as it is known, also about other things than features."
        ),
    ] = False,
) -> None:
    """Check a plugin: does it keep the rules, and what does an audit say of it?

    The verdict stands first and last. Exit code 3 if its guarantee is refuted, 1 if a fault was found or features are
    still read."""
    from fglaudit.suite.yaml_text import read_yaml
    from fglaudit.testing.plugin import check as run_check
    from fglaudit.testing.plugin import load_plugin
    from fglaudit.testing.plugin_words import brief

    interrupt()
    values = read_yaml(fields)
    if not isinstance(values, dict):
        raise FglauditError(f"--fields takes a mapping; got {shown(values)}; write e.g. --fields '{{std: 2.0}}'")
    kind, plugin = load_plugin(name, values)
    print(f"{kind} {type(plugin).name}", flush=True)
    if not verbose and sys.stderr.isatty():
        print("trained, attacked and audited: minutes; --verbose shows what is found as it goes", file=sys.stderr)
    lines = []
    for line in run_check(kind, plugin, protocols=protocol or (), quick=quick):
        lines.append(line)
        if verbose:
            print(f"  {printable(line.text)}", flush=True)
    for text in () if verbose else brief(lines):
        print(f"  {printable(text)}")
    if code := int(lines[-1].code):
        raise SystemExit(code)
