"""Attacks on reports, against a plain formulation node by node; what a report cannot say."""

from __future__ import annotations

import dataclasses
import math

import torch

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.attacks.codes.report_labels import ReportLabels
from fglaudit.attacks.codes.report_rows import ReportRows
from fglaudit.attacks.codes.seen_reports import seen_reports
from fglaudit.defenses.noise.k_ary_response import KAryResponse, keep_probability
from fglaudit.interfaces import Defense, Inference, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View

PROTOCOL = PrivateReports(hops=(1,), width=0, encoder_rounds=40, rounds=1, learning_rate=1.0)


def seen_by_server(defense: Defense | None = None) -> View:
    """Return what a server sees that knows half of the rows."""
    graph = example_graph()
    graph = dataclasses.replace(graph, train=tuple(nodes % 2 == 0 for nodes in graph.clients))  # of all classes
    return record(PROTOCOL, graph, defense).view(Observer(parties=(SERVER,), auxiliary=0.5))


def test_labels_are_the_posterior_of_counted_reports() -> None:
    view = seen_by_server(KAryResponse(epsilon=1.0))
    reported = dict(zip(*(part.tolist() for part in seen_reports(view)), strict=True))
    known = dict(zip(view.auxiliary.nodes.tolist(), view.auxiliary.y.tolist(), strict=True))
    keep, classes = keep_probability(1.0, 3), 3

    def chance(y: int, r: int) -> float:
        says = [(0.9 + 0.1 / 3 if p == y else 0.1 / 3) * (keep if p == r else (1 - keep) / 2) for p in range(classes)]
        pairs = [(known[node], reported[node]) for node in known]
        same = sum(1 for label, report in pairs if (label, report) == (y, r))
        return (same + 2 * math.fsum(says)) / (sum(1 for label, _ in pairs if label == y) + 2)

    found = ReportLabels().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    for node, estimate in zip(found.subjects.tolist(), found.estimate.tolist(), strict=True):
        prior = propagate_labels(view, torch.tensor([node]))[0].tolist()
        weights = [prior[y] * chance(y, reported[node]) for y in range(classes)]
        assert torch.allclose(torch.tensor(estimate), torch.tensor(weights) / sum(weights), atol=1e-4)


def test_rows_differ_by_nothing_but_the_reported_class() -> None:
    view = seen_by_server()
    found = ReportRows().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Reconstruction)
    reported = dict(zip(*(part.tolist() for part in seen_reports(view)), strict=True))
    rows: dict[int, torch.Tensor] = {}
    for node, row in zip(found.nodes.tolist(), found.rows, strict=True):
        assert torch.equal(rows.setdefault(reported[node], row), row)
    assert len(rows) > 1


def test_without_rows_of_two_classes_nothing_can_be_said_of_features() -> None:
    view = record(PROTOCOL).view(Observer(parties=(SERVER,)))
    assert "class means need known rows" in (ReportRows().unsupported(view) or "")
