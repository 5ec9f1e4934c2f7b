"""Self-tests on graphs of one to eight binary features and two classes, where many nodes have equal rows."""

from __future__ import annotations

import pytest

from fglaudit.attacks.global_nodes.global_node_membership import GlobalNodeMembership
from fglaudit.attacks.global_nodes.one_node_clusters import OneNodeClusters
from fglaudit.attacks.updates.absent_words import AbsentWords
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer


@pytest.mark.parametrize(("features", "seed"), [(1, 0), (2, 0), (2, 1), (4, 1), (8, 0)])
def test_self_tests_pass(features: int, seed: int) -> None:
    graph = example_graph(nodes=80, features=features, clients=4, classes=2, seed=seed)
    view = record(FedGT(rounds=1), graph, seed=seed).view(Observer(parties=(-1,), auxiliary=0.2))
    for attack in (OneNodeClusters(), AbsentWords(), GlobalNodeMembership()):
        assert attack.unsupported(view) is None
        assert planted_flaw(attack, view, derive(seed, attack.name), CPU) is None, attack.name
