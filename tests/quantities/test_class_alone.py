"""The guess that is told the class: what it may use, and where it stands beside an attack."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.codes.report_rows import ReportRows
from fglaudit.defenses.noise.k_ary_response import KAryResponse
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Finding
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Defense, FederatedProtocol, Reconstruction
from fglaudit.interfaces.outcomes import PREDICTED_CLASSES
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, ClassReports, MessageBatch, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.quantities.rows.class_alone import class_alone
from fglaudit.recording import Kept, record_training
from fglaudit.scoring import score
from fglaudit.testing import example_graph, record
from fglaudit.view import Auxiliary, Observer, View

_DRAWN = example_graph()
GRAPH = dataclasses.replace(_DRAWN, train=tuple(nodes % 2 == 0 for nodes in _DRAWN.clients))  # of all classes
PROTOCOL = PrivateReports(hops=(1,), width=0, encoder_rounds=40, rounds=1, learning_rate=1.0)
SERVER_KNOWS = ObserverSpec(("server",), auxiliary=0.3)


class Unread:
    """Messages that must not be asked for."""

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        raise AssertionError("a guess read a message")


def seen() -> View:
    view = record(PROTOCOL, GRAPH).view(Observer(parties=(SERVER,), auxiliary=0.3))
    return dataclasses.replace(view, messages=Unread())


def test_a_row_is_the_mean_of_known_rows_that_predict_its_class_and_labels_are_not_used() -> None:
    view, width = seen(), GRAPH.num_features
    nodes = view.auxiliary.nodes[:4]
    x = torch.zeros(4, width)
    x[:2, :3], x[2:, 3:5] = 1.0, 1.0  # two rows of either class, alike
    predicted = torch.zeros(GRAPH.num_nodes, dtype=torch.long)
    predicted[nodes[2:]] = 1
    strangers = torch.tensor([i for i in range(GRAPH.num_nodes) if i not in view.auxiliary.nodes.tolist()][:2])
    predicted[strangers[1]] = 1
    for labels in (torch.zeros(4), torch.tensor([0.0, 1.0, 0.0, 1.0])):
        known = dataclasses.replace(view, auxiliary=Auxiliary(nodes, x, labels.long()))
        found = class_alone(known, predicted, strangers)
        assert found is not None and torch.equal(found.nodes, strangers)
        assert found.rows[0].nonzero().flatten().tolist() == [0, 1, 2]
        assert found.rows[1].nonzero().flatten().tolist() == [3, 4]


def test_real_valued_rows_are_means_shrunk_by_one_row_of_all() -> None:
    view = seen()
    real = dataclasses.replace(view, public=dataclasses.replace(view.public, features=FeatureKind.REAL))
    nodes, x = view.auxiliary.nodes[:3], torch.zeros(3, GRAPH.num_features)
    x[:, 0] = torch.tensor([1.0, 2.0, 6.0])
    predicted = torch.zeros(GRAPH.num_nodes, dtype=torch.long)
    predicted[nodes[2]] = 1
    known = dataclasses.replace(real, auxiliary=Auxiliary(nodes, x, torch.zeros(3, dtype=torch.long)))
    found = class_alone(known, predicted, nodes)
    assert found is not None
    assert found.rows[:, 0].tolist() == pytest.approx([(3 + 3) / 3, (3 + 3) / 3, (6 + 3) / 2])


def test_nothing_is_guessed_of_who_reports_nothing_or_without_a_known_row() -> None:
    view = seen()
    none = torch.empty(0, dtype=torch.long)
    assert class_alone(view, none, torch.arange(2)) is None
    blind = dataclasses.replace(view, auxiliary=Auxiliary.empty(GRAPH.num_features))
    assert class_alone(blind, torch.zeros(GRAPH.num_nodes, dtype=torch.long), torch.arange(2)) is None


@dataclass(frozen=True)
class Says(Attack):
    """Returns rows that it was given, whatever it sees."""

    name: ClassVar[str] = "says"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ClassReports,)
    metric: ClassVar[str] = "f1"

    rows: tuple[tuple[float, ...], ...] = ()

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        rows = torch.tensor(self.rows)
        return Reconstruction(rows, torch.arange(len(rows)), torch.ones(len(rows)))


@dataclass(frozen=True)
class SaysOfSums(Says):
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)


def finding(attack: Attack, protocol: FederatedProtocol = PROTOCOL, defense: Defense | None = None) -> Finding:
    recording, truth = record_training(GRAPH, protocol, defense or NoDefense(), keep=Kept(fractions=(0.0, 0.3)))
    (measured,) = score(run_attacks(recording, [SERVER_KNOWS], [attack]), truth)
    return measured.finding


def test_what_an_attack_has_beyond_the_class_stands_beside_it() -> None:
    _, truth = record_training(GRAPH, PROTOCOL, NoDefense(), keep=Kept(fractions=(0.0, 0.3)))
    told = class_alone(seen(), truth.trained.truth[PREDICTED_CLASSES], torch.arange(GRAPH.num_nodes))
    assert told is not None
    same, all_ = (finding(Says(tuple(map(tuple, rows.tolist())))) for rows in (told.rows, GRAPH.x))
    assert same.control_class == pytest.approx(same.value) and same.advantage_class == pytest.approx(0.0)
    assert same.control_class == pytest.approx(all_.control_class) and same.control_class != same.control
    assert all_.value == pytest.approx(1.0) and all_.advantage_class == pytest.approx(1.0)


def test_the_class_is_told_before_the_response_and_only_where_classes_are_reported() -> None:
    clear, random = (finding(ReportRows(), defense=defense) for defense in (None, KAryResponse(epsilon=0.1)))
    assert clear.control_class is not None and clear.control_class == random.control_class
    assert clear.advantage_class_low is not None and clear.advantage_class_high is not None
    assert clear.advantage_class_low <= (clear.advantage_class or 0.0) <= clear.advantage_class_high
    sums = finding(SaysOfSums(((0.0,) * GRAPH.num_features,)), protocol=FedGCN(hops=1, rounds=1))
    assert sums.value is not None and sums.control_class is None and sums.advantage_class is None
