"""``fglaudit gate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fglaudit.commands.options import given_path
from fglaudit.interruption import interrupt


def gate(
    directory: Annotated[Path, typer.Argument(parser=given_path, metavar="RUN", help="Folder of a run.")],
    policy: Annotated[
        Path, typer.Argument(parser=given_path, metavar="POLICY", help="A YAML file; docs/gate.md has its keys.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    junit: Annotated[
        Path | None, typer.Option(parser=given_path, metavar="PATH", help="Also write JUnit XML into this file.")
    ] = None,
    github: Annotated[bool, typer.Option("--github", help="Also print annotations for GitHub Actions.")] = False,
) -> None:
    """Compare a run with a policy.

    Exit code 4 if it is broken or not shown, 3 if a guarantee is refuted, 2 if the policy asks what no run of this
    suite can show."""
    from fglaudit.files.own import write_atomic
    from fglaudit.gate import output
    from fglaudit.gate.checks import check_run
    from fglaudit.gate.policy import read_policy

    interrupt()
    outcome = check_run(directory, read_policy(policy))
    if junit is not None:  # first: where it cannot be written, that is the outcome, and the only JSON
        write_atomic(junit, output.junit(outcome), option="--junit")
    print(output.as_json(outcome) if json else output.text(outcome))
    if github:  # which reads both streams, and a script one JSON
        print(output.github(outcome), file=sys.stderr if json else sys.stdout)
    if outcome.code:
        raise SystemExit(int(outcome.code))
