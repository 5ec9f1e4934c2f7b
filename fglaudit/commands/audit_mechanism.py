"""``fglaudit audit-mechanism``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fglaudit.errors import printable, unknown
from fglaudit.interruption import interrupt


def audit_mechanism(
    name: Annotated[str, typer.Argument(metavar="FILE:NAME", help="file.py:name or module:name, function or class.")],
    epsilon: Annotated[float, typer.Option(help="What its author promises.")],
    delta: Annotated[float, typer.Option(help="Of that promise; 0: pure.")] = 0.0,
    gaussian: Annotated[
        bool, typer.Option("--gaussian", help="It adds Gaussian noise: test the whole curve, with far fewer replays.")
    ] = False,
    columns: Annotated[int, typer.Option(help="Numbers of a row, or how many classes there are.")] = 16,
    rows: Annotated[int, typer.Option(help="Rows that it is called with, of which one changes; 1: a row alone.")] = 1,
    values: Annotated[str, typer.Option(help="real, binary or class.")] = "real",
    norm: Annotated[str, typer.Option(help="By which real rows are bounded: l1, l2 or linf.")] = "l2",
    bound: Annotated[float, typer.Option(help="Largest norm of a real row.")] = 1.0,
    any_length: Annotated[bool, typer.Option("--any-length", help="It clips rows itself: try longer ones.")] = False,
    relation: Annotated[
        str, typer.Option(help="What happens to the row: 'replaced', 'zeroed out' or 'added or removed'.")
    ] = "replaced",
    releases: Annotated[int, typer.Option(help="Calls that the promise covers together.")] = 1,
    replays: Annotated[int | None, typer.Option(help="Per world and input; by default what epsilon asks for.")] = None,
    seed: Annotated[int, typer.Option(help="Of inputs and replays.")] = 0,
    numpy: Annotated[
        bool, typer.Option("--numpy", help="It takes arrays and a numpy.random.Generator, not tensors and torch's.")
    ] = False,
) -> None:
    """Put the epsilon of any noise mechanism or filter to the test, with nothing of fglaudit around it.

    Exit code 3 if it is refuted, 1 if it could not be tested."""
    from fglaudit.empirical.mechanisms.audit import Promise
    from fglaudit.empirical.mechanisms.audit import audit_mechanism as audited
    from fglaudit.empirical.mechanisms.calls import AuditedMechanism, named
    from fglaudit.empirical.mechanisms.inputs import Inputs, Norm, Values
    from fglaudit.execution.exit_code import ExitCode
    from fglaudit.guarantees import Outcome
    from fglaudit.privacy.accounting import Relation

    interrupt()
    kinds = {"values": (Values, values), "norm": (Norm, norm), "relation": (Relation, relation)}
    for option, (kind, given) in kinds.items():
        if given not in list(kind):
            raise unknown(f"--{option}", given, [each.value for each in kind])
    inputs = Inputs(columns, rows, Values(values), Norm(norm), bound, any_length, Relation(relation))
    promise = Promise(epsilon, delta, gaussian)
    found = audited(
        AuditedMechanism(named(name), numpy),
        promise,
        inputs,
        releases=releases,
        replays=replays,
        seed=seed,
        progress=lambda text: print(printable(text), file=sys.stderr),
    )
    print(*map(printable, found.lines()), sep="\n")
    code = {Outcome.REFUTED: ExitCode.REFUTED, Outcome.UNTESTED: ExitCode.FAILED}.get(found.outcome)
    if code:
        raise SystemExit(int(code))
