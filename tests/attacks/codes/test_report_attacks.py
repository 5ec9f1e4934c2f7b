"""Attacks on reports, against a plain formulation node by node; what a report cannot say."""

from __future__ import annotations

import dataclasses
import math

import torch
from scored_runs import finding_of
from torch.nn.functional import one_hot

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.reported_classes import seen_reports
from fglaudit.attacks.codes.report_labels import ReportLabels
from fglaudit.attacks.codes.report_rows import ReportRows
from fglaudit.attacks.codes.seen_reports import reporting, sent_reports
from fglaudit.defenses.noise.k_ary_response import KAryResponse
from fglaudit.finding import Status
from fglaudit.graph import FeatureKind, canonical_edges
from fglaudit.interfaces import Defense, Inference, Reconstruction
from fglaudit.nn.responses import keep_probability
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
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
        if node in known:
            continue
        prior = propagate_labels(view, torch.tensor([node]))[0].tolist()
        weights = [prior[y] * chance(y, reported[node]) for y in range(classes)]
        assert torch.allclose(torch.tensor(estimate), torch.tensor(weights) / sum(weights), atol=1e-4)


def test_reports_of_neighbours_speak_for_a_node() -> None:
    """Five cliques of ten, a class each: at epsilon 1.5 every second report is wrong, ten together hardly ever are."""
    clique, classes = torch.cartesian_prod(torch.arange(10), torch.arange(10)).T, 5
    edges = torch.cat([clique + 10 * c for c in range(classes)], 1)
    y = torch.arange(10 * classes) // 10
    graph = example_graph(nodes=10 * classes, features=24, classes=classes)
    graph = dataclasses.replace(graph, y=y, x=one_hot(y, 24).float(), edge_index=canonical_edges(edges, len(y)))
    right = []
    for seed in range(4):
        run = record(dataclasses.replace(PROTOCOL, rounds=1), graph, KAryResponse(epsilon=1.5), seed=seed)
        view = run.view(Observer(parties=(SERVER,), topology=True, auxiliary=0.2), seed=seed)
        found = ReportLabels().run(view, rng=derive(0, "attack"), device=CPU)
        bare = ReportLabels().run(dataclasses.replace(view, topology=None), rng=derive(0, "attack"), device=CPU)
        right.append([float((f.estimate.argmax(1) == y[f.subjects]).double().mean()) for f in (found, bare)])
    together, single = torch.tensor(right).mean(0).tolist()
    assert together > 0.9 > 0.7 > single


def test_reports_are_worth_what_neighbours_say_where_no_label_is_known() -> None:
    """Half of all reports are wrong, and were believed nine times in ten: a node's own outweighed its neighbours'."""
    graph = example_graph(nodes=50, features=24, classes=5)
    clique, nodes = torch.cartesian_prod(torch.arange(10), torch.arange(10)).T, torch.arange(50)
    y, other = nodes // 10, 1 + nodes % 10 // 2 % 4
    edges = canonical_edges(torch.cat([clique + 10 * c for c in range(5)], 1), 50)
    graph = dataclasses.replace(graph, y=y, edge_index=edges)
    view = record(PROTOCOL, graph).view(Observer(parties=(SERVER,), topology=True))
    told = sent_reports(view, nodes, one_hot(torch.where(nodes % 2 == 0, y, (y + other) % 5), 5))
    view = dataclasses.replace(view, messages=MemoryMessages((told,)))
    found = ReportLabels().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    assert (found.estimate.argmax(1) == y[found.subjects]).all()


def test_rows_differ_by_nothing_but_the_reported_class() -> None:
    view = seen_by_server()
    view = dataclasses.replace(view, public=dataclasses.replace(view.public, features=FeatureKind.REAL))
    found = ReportRows().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Reconstruction)
    reported = dict(zip(*(part.tolist() for part in seen_reports(view)), strict=True))
    rows: dict[int, torch.Tensor] = {}
    unknown = ~torch.isin(found.nodes, view.auxiliary.nodes)  # of the others the label is known
    for node, row in zip(found.nodes[unknown].tolist(), found.rows[unknown], strict=True):
        torch.testing.assert_close(rows.setdefault(reported[node], row), row)
    assert len(rows) > 1


def test_where_edges_are_known_a_row_is_the_mean_of_its_class_and_of_its_known_neighbours() -> None:
    graph = example_graph()
    recording = record(PROTOCOL, dataclasses.replace(graph, train=tuple(nodes % 2 == 0 for nodes in graph.clients)))
    view = recording.view(Observer(parties=(SERVER,), topology=True, auxiliary=0.5))
    view = dataclasses.replace(view, public=dataclasses.replace(view.public, features=FeatureKind.REAL))
    known = dict(zip(view.auxiliary.nodes.tolist(), view.auxiliary.x.double(), strict=True))
    label = dict(zip(view.auxiliary.nodes.tolist(), view.auxiliary.y.tolist(), strict=True))
    assert view.topology is not None
    edges = [pair for pair in view.topology.T.tolist() if pair[0] != pair[1]]
    near = {node: [known[j] for i, j in edges if i == node and j in known] for node in range(graph.num_nodes)}
    average = torch.stack(list(known.values())).mean(0)
    spread = feature_prior(view, view.auxiliary.nodes[:1]).variance[0]

    def class_mean(y: int, without: int = -1) -> torch.Tensor:
        rows = [row for node, row in known.items() if label[node] == y and node != without]
        return (sum(rows, average)) / (len(rows) + 1)

    def expected(centre: torch.Tensor, node: int, strength: float) -> torch.Tensor:
        return (strength * centre + sum(near[node], torch.zeros_like(centre))) / (strength + len(near[node]))

    def misses(strength: float) -> float:
        guesses = {i: expected(class_mean(label[i], i), i, strength) for i in known if near[i]}
        return math.fsum(float(((known[i] - row) ** 2 / spread).sum()) for i, row in guesses.items())

    strength = min((2.0**power for power in range(9)), key=misses)
    seen = seen_reports(view)
    chance = reporting(view, seen)
    reported = dict(zip(*(part.tolist() for part in seen), strict=True))
    found = ReportRows().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Reconstruction)
    for node, row in zip(found.nodes.tolist(), found.rows, strict=True):
        weights = propagate_labels(view, torch.tensor([node]))[0] * chance[:, reported[node]]
        means = torch.stack([class_mean(y) for y in range(3)])
        torch.testing.assert_close(row.double(), expected((weights / weights.sum()) @ means, node, strength))


def test_without_rows_of_two_classes_nothing_can_be_said_of_features() -> None:
    view = record(PROTOCOL).view(Observer(parties=(SERVER,)))
    assert "class means need known rows" in (ReportRows().unsupported(view) or "")


def test_expected_rows_prove_themselves_by_direction() -> None:
    """An expectation of real-valued rows is no row: the self-test asked for exact ones, so that no answer counted."""
    graph = example_graph(nodes=120, features=30, clients=8)
    noise = torch.randn(graph.x.shape, generator=torch.Generator().manual_seed(3))
    real = dataclasses.replace(graph, x=one_hot(graph.y, 30) * 3 + noise, features=FeatureKind.REAL)
    found = finding_of(record(PROTOCOL, real), ReportRows(), ObserverSpec(parties=("client:0",)))
    assert (found.status, found.metric) == (Status.OK, "cosine"), found.reason
    assert found.value is not None and found.control is not None and found.value > found.control


@dataclasses.dataclass(frozen=True)
class DeafRows(ReportRows):
    """Says of every node what it says of the first one."""

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        found = super().run(view, rng=rng, device=device)
        return dataclasses.replace(found, rows=found.rows[:1].expand_as(found.rows))


def test_one_row_for_all_proves_nothing() -> None:
    graph = example_graph(nodes=120, features=30, clients=8)
    real = dataclasses.replace(graph, x=graph.x + 10, features=FeatureKind.REAL)
    for attack, works in ((ReportRows(), True), (DeafRows(), False)):
        view = record(PROTOCOL, real).view(Observer(parties=(0,)))
        assert (planted_flaw(attack, view, derive(0, "self-test"), CPU) is None) == works
