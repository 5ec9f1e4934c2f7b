"""The guess beside attacks on reported classes: rows of the classes that edges and known labels make likely."""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.codes.report_rows import ReportRows
from fglaudit.datasets.csbm import draw
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Finding, Status
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.recording import Kept, record_training
from fglaudit.rng import derive
from fglaudit.scoring import score
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Auxiliary, Observer

PROTOCOL = PrivateReports(hops=(1,), width=0, encoder_rounds=40, rounds=1, learning_rate=1.0)


def finding() -> Finding:
    """Return what the server finds in a graph of many edges and few words, one row in ten known."""
    drawn = draw(CsbmOptions(nodes=300, edges=3000, dimensions=12, ones_per_row=3, homophily=0.8))
    graph = example_graph(nodes=300, features=12, clients=5, classes=5)
    graph = dataclasses.replace(graph, x=drawn.x, y=drawn.y, edge_index=drawn.edge_index)
    recording, truth = record_training(graph, PROTOCOL, NoDefense(), keep=Kept(fractions=(0.0, 0.1)))
    server = ObserverSpec(("server",), topology=True, auxiliary=0.1)
    (measured,) = score(run_attacks(recording, [server], [ReportRows()]), truth)
    return measured.finding


def test_what_edges_alone_say_of_a_class_is_no_leak_of_reports_and_breaks_no_attack_on_them() -> None:
    found = finding()
    assert found.status is Status.OK, found.reason
    assert found.control is not None and found.control > 0.42  # the mean row of known neighbours: 0.385


def test_a_class_with_one_known_row_does_not_break_the_self_test() -> None:
    graph = example_graph(nodes=60)
    view = record(PROTOCOL, graph).view(Observer(parties=(SERVER,), auxiliary=0.3))
    y = torch.ones_like(view.auxiliary.y)
    y[0] = 0
    view = dataclasses.replace(view, auxiliary=Auxiliary(view.auxiliary.nodes, view.auxiliary.x, y))
    assert [planted_flaw(ReportRows(), view, derive(seed, "selftest"), CPU) for seed in range(4)] == [None] * 4
