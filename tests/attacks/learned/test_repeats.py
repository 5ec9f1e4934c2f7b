"""Defenses that hide every message and not all of them together: averages, differences and sums of repeats."""

from __future__ import annotations

import pytest
from repeating_protocol import Repeated, Repeating

import fglaudit
from fglaudit.finding import Finding, Status
from fglaudit.observers import ObserverSpec
from fglaudit.testing import example_graph


def audited(rounds: int, defense: Repeated, auxiliary: float = 0.0) -> Finding:
    made = example_graph(nodes=60, features=24)
    graph = {"x": made.x.numpy(), "y": made.y.numpy(), "edge_index": made.edge_index.numpy()}
    report = fglaudit.audit(
        graph,
        protocol=Repeating(rounds),
        defense=defense,
        clients=3,
        observers=[ObserverSpec(("server",), auxiliary=auxiliary)],
        attacks=["learned-inversion"],
        empirical=False,
    )
    return report.records[0].findings[0]


@pytest.mark.parametrize(
    ("rounds", "defense"),
    [
        (2, Repeated("difference")),
        (2, Repeated("sum")),
        (4, Repeated("shares")),
        (100, Repeated("noise", 1.0)),
        (100, Repeated("noise", 1.0, stated=True)),
    ],
    ids=["difference", "sum", "shares", "unstated noise", "stated noise"],
)
def test_what_is_sent_repeatedly_is_read_together(rounds: int, defense: Repeated) -> None:
    found = audited(rounds, defense, 0.2)
    assert found.status is Status.OK, found.reason
    assert (found.exact_rate or 0) >= 0.95 > 0.5 > (found.control_exact_rate or 0)


@pytest.mark.parametrize("defense", [Repeated("noise", 30.0), Repeated("difference")])
def test_one_message_alone_says_nothing(defense: Repeated) -> None:
    found = audited(1, defense, 0.2)
    assert found.status is Status.OK and (found.advantage_low or 0) <= 0.02
