"""What every observer of every protocol gets under every defense: an attack's finding, or the reason why there is none.

Small data sets (``bench.defense_settings``): the matrix shows what applies and what breaks through, not how well it
does on real data. Every attack that reads what a protocol sends is run; the strongest one stands for the entry, one
that links the uploads of one client only where there is no other. An attack succeeds where the
lower end of its interval is above 0.02 or rows are proven; "no attack succeeded" (every upper end at most 0.02) is no
proof of privacy, and where there are too few clients to tell the entry is "undecided".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from bench.defense_settings import SETUPS, Setup, defenses
from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.execution.run_cell import run_cell
from fglaudit.finding import Finding, Status
from fglaudit.observers import ObserverSpec
from fglaudit.reproduce.measurements import Table
from fglaudit.suite.cell import Cell, arguments
from fglaudit.suite.suite import Suite

OBSERVERS = (
    ObserverSpec(("server",), auxiliary=0.1),
    ObserverSpec(("server",), auxiliary=0.1, topology=True),
    ObserverSpec(("client:each",), auxiliary=0.1),
    ObserverSpec(("client:each",), auxiliary=0.1, topology=True),
    ObserverSpec(("server", "client:0"), auxiliary=0.1, topology=True),
    ObserverSpec(("wire",), auxiliary=0.1),
)
"""Without the edges there is something to infer about them; with them, rows can be told apart."""
SUCCEEDS_ABOVE = 0.02
KEY = ("protocol", "arguments", "defense", "settings", "observer")
VALUES = (
    "verdict",
    "attack",
    "metric",
    "value",
    "control",
    "advantage",
    "advantage_low",
    "advantage_high",
    "accuracy",
    "reason",
    "cpu_seconds",
)


def run(results: Path, setups: Sequence[Setup] = SETUPS) -> None:
    """Measure what is missing in ``results/defense_matrix.csv``, then print the matrix."""
    table = Table(results / "defense_matrix.csv", KEY, VALUES)
    for setup in setups:
        for cell in cells(setup):
            entries = [key(cell, observer) for observer in cell.observers]
            if not all(table.has(entry) for entry in entries):
                for row in measure(cell):
                    if not table.has(row):
                        table.add(row)
    for row in table.rows():
        print(*row.values(), sep=" | ")


def cells(setup: Setup) -> list[Cell]:
    """Return one cell per defense, with every attack that fits the protocol and every observer."""
    attacks = tuple(registry.build("attack", name, {}) for name in registry.names("attack"))
    suite = Suite(
        "defense-matrix",
        (setup.dataset,),
        (setup.partition,),
        (setup.build(),),
        (None,),
        tuple(defenses(setup.protocol)),
        OBSERVERS,
        attacks,
        record="needed",
        empirical=False,
        seeds=(0,),
        all_attacks=True,
    )
    return suite.cells()


def key(cell: Cell, observer: ObserverSpec) -> dict[str, str]:
    """Return what identifies an entry."""
    who = observer.name + (" with topology" if observer.topology else "")
    named = (cell.protocol.name, arguments(cell.protocol), cell.defense.name, arguments(cell.defense), who)
    return dict(zip(KEY, named, strict=True))


def measure(cell: Cell) -> Iterator[dict[str, str]]:
    """Yield the entry of every observer."""
    start = time.process_time()
    try:
        findings = run_cell(cell, suite="defense-matrix", device=torch.device("cpu")).findings
        refused = ""
    except FglauditError as error:  # the protocol cannot use what the defense leaves: that is the entry's reason
        findings, refused = (), str(error)
    seconds = f"{time.process_time() - start:.1f}"
    for observer in cell.observers:
        mine = [
            f
            for f in findings
            if f.observer == observer.name and ("topology" in f.observer_knowledge) == observer.topology
        ]
        entry = strongest(mine) if mine else {"verdict": "reason", "reason": refused}
        yield {**dict.fromkeys(VALUES, ""), **key(cell, observer), **entry, "cpu_seconds": seconds}


def strongest(findings: Sequence[Finding]) -> dict[str, str]:
    """Return the entry that one observer's findings come to: the strongest attack, what failed, or why nothing
    applies."""
    wrong = [f for f in findings if f.status in (Status.FAILED, Status.BROKEN_ATTACK)]
    if wrong:
        return {
            "verdict": "broken",
            "attack": wrong[0].attack,
            "reason": "; ".join(f"{f.attack}: {f.reason}" for f in wrong),
        }
    measured = [f for f in findings if f.status is Status.OK and f.advantage is not None]
    if not measured:
        reasons = dict.fromkeys(f"{f.reason}" for f in findings)
        return {"verdict": "reason", "reason": "; ".join(reasons)}
    about_data = [f for f in measured if f.quantity != "linkage"]
    measured = about_data or measured
    found = max(measured, key=lambda f: (f.advantage_low or 0.0) if f.advantage_low is not None else -1.0)
    assert found.advantage is not None and found.advantage_low is not None and found.advantage_high is not None
    return {
        "verdict": _verdict(measured),
        "attack": found.attack,
        "metric": found.metric,
        "value": f"{found.value:.4f}",
        "control": f"{found.control:.4f}",
        "advantage": f"{found.advantage:.4f}",
        "advantage_low": f"{found.advantage_low:.4f}",
        "advantage_high": f"{found.advantage_high:.4f}",
        "accuracy": "" if found.accuracy_global is None else f"{found.accuracy_global:.4f}",
    }


def _verdict(measured: Sequence[Finding]) -> str:
    """Return what the findings of one observer come to; a range over few clusters shows nothing."""
    shown = [f for f in measured if f.interval != "range"]
    if any(f.identifiable_rate for f in measured) or any((f.advantage_low or 0.0) > SUCCEEDS_ABOVE for f in shown):
        return "succeeds"
    able = [f for f in measured if f.can_reassure]
    ends = [1.0 if f.interval == "range" or f.advantage_high is None else f.advantage_high for f in able]
    return "no attack succeeded" if ends and max(ends) <= SUCCEEDS_ABOVE else "undecided"
