"""Attacks on FedGAT's embeddings where rows have few features, and attention differs much between them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.attacks.neighborhoods.embedding_inversion import EmbeddingInversion
from fglaudit.attacks.neighborhoods.embedding_neighbors import EmbeddingNeighbors
from fglaudit.conformance.runs import example_graph
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, Run, record
from fglaudit.view import Observer

PROTOCOL = FedGAT(rounds=3, local_steps=1)


def trained(features: int, kind: FeatureKind) -> Run:
    graph = example_graph(nodes=45, features=features, classes=2)
    if kind is FeatureKind.REAL:
        graph = dataclasses.replace(graph, x=torch.randn(graph.x.shape, generator=derive(0, "r")), features=kind)
    return record(PROTOCOL, graph)


@pytest.mark.parametrize("attack", [EmbeddingInversion(), EmbeddingNeighbors()], ids=lambda attack: attack.name)
@pytest.mark.parametrize(
    ("features", "kind"),
    [(2, FeatureKind.BINARY), (4, FeatureKind.BINARY), (12, FeatureKind.BINARY), (2, FeatureKind.REAL)],
)
def test_a_plain_leak_of_few_features_is_found(attack: Attack, features: int, kind: FeatureKind) -> None:
    """Half of the entries at most were solved for, and rows were looked for with a typical row's attention."""
    view = trained(features, kind).view(Observer((0,)))
    assert attack.unsupported(view) is None
    assert planted_flaw(attack, view, derive(0, "st"), CPU) is None


def test_a_single_discrete_feature_tells_no_node_from_another() -> None:
    view = trained(1, FeatureKind.BINARY).view(Observer((0,)))
    assert "alike" in str(EmbeddingNeighbors().unsupported(view))
