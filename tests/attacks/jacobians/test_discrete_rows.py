"""Binary rows behind representations alone (variant V2), where real-valued inversion is far from them."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch

from fglaudit.attacks.jacobians.representation_inversion import RepresentationInversion
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.graph import FeatureKind, federate
from fglaudit.interfaces import Reconstruction
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, record
from fglaudit.view import Observer


@cache
def recorded(features: int, kind: FeatureKind, rounds: int = 20, samples: int | None = None) -> Run:
    task = CsbmTask(nodes=24, degree=6.0, dimensions=features, samples=samples)
    graph = draw_task("csbm-dnc" if samples is None else "csbm-snc", task, draw=0)
    assert graph.train is not None and graph.val is not None and graph.test is not None
    clients = list(torch.arange(graph.num_nodes).unsqueeze(1))
    federated = federate(graph, clients, graph.train, graph.val, graph.test)
    x = (graph.x > graph.x.std()).float()
    x = x / x.sum(-1, keepdim=True).clamp(min=1) if kind is FeatureKind.SCALED_BINARY else x
    return record(GFLAPPNP(variant="v2", rounds=rounds, hidden=16), dataclasses.replace(federated, x=x, features=kind))


def rebuilt(run: Run) -> Reconstruction:
    view = run.view(Observer((-1,), topology=True))
    result = RepresentationInversion().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    return result


@pytest.mark.parametrize("kind", [FeatureKind.BINARY, FeatureKind.SCALED_BINARY])
@pytest.mark.parametrize("features", [1, 8, 16])
def test_few_features_are_told_from_all_rows_there_can_be(features: int, kind: FeatureKind) -> None:
    run = recorded(features, kind)
    result, truth = rebuilt(run), run.graph.x
    right = (result.rows - truth[result.nodes]).abs().amax(1) < 1e-3
    assert result.claimed is not None
    assert float(right.float().mean()) > 0.9
    assert bool(right[result.claimed].all())
    if features > 1:
        assert float(result.claimed.float().mean()) > 0.8


def test_more_features_are_flipped_until_they_fit() -> None:
    run = recorded(30, FeatureKind.BINARY, rounds=100)
    result, truth = rebuilt(run), run.graph.x
    right = (result.rows == truth[result.nodes]).all(1)
    assert result.claimed is not None and bool(right[result.claimed].all())
    assert int(result.claimed.sum()) >= 3


def test_a_mean_of_several_samples_is_no_row() -> None:
    result = rebuilt(recorded(8, FeatureKind.BINARY, samples=4))
    assert result.claimed is not None and not bool(result.claimed.any())
