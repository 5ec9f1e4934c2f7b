"""Masked messages about rows of a single real number: fewer features than neighbours, and opposite rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.attacks.neighborhoods.power_moments import PowerMoments
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer


@pytest.mark.parametrize("attack", [JointDiagonalisation(), PowerMoments()], ids=lambda attack: attack.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_self_test_passes_on_one_real_feature(attack: Attack, seed: int) -> None:
    graph = example_graph(nodes=80, features=1, clients=4, classes=2, seed=seed)
    x = torch.randn(graph.x.shape, generator=derive(seed, "real"))
    run = record(FedGAT(rounds=1), dataclasses.replace(graph, x=x, features=FeatureKind.REAL), seed=seed)
    view = run.view(Observer(parties=(0,), auxiliary=0.1))
    assert planted_flaw(attack, view, derive(seed, "self-test", attack.name), CPU) is None


def test_opposite_rows_are_told_apart() -> None:
    """Every row is u or -u: their singular values are equal, and a basis of both gave rows that nobody has."""
    graph = example_graph(nodes=60, features=3, clients=3)
    sign = torch.where(torch.arange(60) % 2 == 0, 1.0, -1.0)
    x = sign[:, None] * torch.tensor([0.3, 0.5, 0.4])
    run = record(FedGAT(rounds=1), dataclasses.replace(graph, x=x, features=FeatureKind.REAL))
    found = JointDiagonalisation().recover(run.view(Observer(parties=(0,))), derive(0, "attack"), CPU)
    sure = found.rows[found.sure]
    assert len(sure) > 20
    torch.testing.assert_close(sure.abs(), x[0].abs().expand_as(sure), atol=1e-4, rtol=0)
