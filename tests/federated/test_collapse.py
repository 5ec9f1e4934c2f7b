"""A note where training ended no better than a constant guess."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.federated.collapse import balanced_accuracy, collapsed
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Trained
from fglaudit.partition import facts
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.testing import example_graph, record


def graph(test: int = 120) -> FederatedGraph:
    """Return a graph with so many test nodes, a third of them in each of three classes."""
    whole = example_graph(nodes=120)
    masks, left = [], test
    for ids in whole.clients:
        masks.append(torch.arange(len(ids)) < left)
        left -= min(left, len(ids))
    return dataclasses.replace(whole, test=tuple(masks))


def trained(accuracy: float) -> Trained:
    return Trained(torch.tensor([[accuracy] * 3]), torch.tensor([accuracy]), {})


@pytest.mark.parametrize(("accuracy", "noted"), [(0.1, True), (1 / 3, True), (0.4, True), (0.45, False), (0.9, False)])
def test_chance_is_two_deviations_wide(accuracy: float, noted: bool) -> None:
    """A constant guess has 40 of 120 nodes right, with a standard deviation of 4.3 points."""
    notes = collapsed(FedGCN(), trained(accuracy), graph())
    assert bool(notes) == noted and all("largest class" in note and "optimizer: adam" in note for note in notes)


def test_few_test_nodes_are_less_certain() -> None:
    few = graph(12)
    (defended,) = collapsed(FedGCN(), trained(0.55), few, "gaussian")
    assert defended.startswith("fedgcn with gaussian: training collapsed") and "gaussian is the cause" in defended
    assert collapsed(FedGCN(), trained(0.55), few) and not collapsed(FedGCN(), trained(0.55), graph())


def test_nothing_is_said_without_test_nodes_or_with_one_class() -> None:
    assert collapsed(FedGCN(), trained(float("nan")), graph(0)) == ()
    one = dataclasses.replace(graph(), y=torch.zeros(120, dtype=torch.long))
    assert collapsed(FedGCN(), trained(1.0), one) == ()


@pytest.mark.parametrize(("named", "noted"), [(1, True), (2, True), (3, False)])
def test_classes_that_are_hardly_ever_named_are_noted(named: int, noted: bool) -> None:
    """Two thirds of the answers may be right while a third of the classes never is."""
    labels = facts.tested_labels(graph())
    right = (labels < named) & (torch.rand(120, generator=torch.Generator().manual_seed(0)) < 0.95)
    accuracy = float(right.float().mean())
    notes = collapsed(FedGCN(), dataclasses.replace(trained(max(accuracy, 0.6)), right=right), graph())
    assert bool(notes) == noted and all("classes" in note for note in notes)


def test_the_change_depends_on_what_is_set() -> None:
    for protocol, told in (
        (FedGCN(), "optimizer: adam and learning_rate: 0.01"),
        (FedGCN(optimizer="adam", learning_rate=0.3), "another learning_rate than 0.3"),
        (FedGT(), "another learning_rate than 0.001"),
    ):
        (note,) = collapsed(protocol, trained(0.1), graph())
        assert told in note and note.startswith(type(protocol).name)


def test_the_record_has_the_note() -> None:
    """A learning rate of 0 trains nothing; the same run with a good one gets over the line."""
    easy = example_graph(nodes=150, classes=2)
    stuck, learned = (
        record(FedGCN(hops=1, rounds=rounds, learning_rate=rate), easy).recording.notes
        for rounds, rate in ((1, 1e-9), (40, 0.5))
    )
    assert any("training collapsed" in note for note in stuck)
    assert not any("training collapsed" in note for note in learned)


def test_balanced_accuracy_weighs_every_tested_class_alike() -> None:
    """Of ten test nodes nine are of one class: naming it everywhere has nine right, and one class of two."""
    whole = graph(10)
    tested = torch.cat([ids[mask] for ids, mask in zip(whole.clients, whole.test, strict=True)])
    y = torch.zeros_like(whole.y)
    y[tested[0]] = 2  # class 1 is not tested
    uneven = dataclasses.replace(whole, y=y)
    constant = dataclasses.replace(trained(0.9), right=y[tested] == 0)
    assert len(tested) == 10 and balanced_accuracy(constant, uneven) == 0.5
    assert balanced_accuracy(dataclasses.replace(constant, right=torch.ones(10, dtype=torch.bool)), uneven) == 1
    assert balanced_accuracy(trained(0.9), uneven) is None
