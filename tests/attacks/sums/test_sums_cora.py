"""Golden leak numbers on real Cora: an attack that gets worse is a broken attack."""

from __future__ import annotations

import importlib

import pytest
import torch
from neighbor_sum_views import make_view

from fglaudit.attacks import ATTACKS
from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, federate
from fglaudit.interfaces import Reconstruction
from fglaudit.rng import derive
from fglaudit.view import Observer


@pytest.fixture(scope="module")
def cora() -> FederatedGraph:
    try:
        graph = DatasetSpec(name="cora").load()
    except FglauditError as error:
        pytest.skip(f"Cora is not here: {error}")
    order = torch.randperm(graph.num_nodes, generator=derive(0, "partition"))
    mask = torch.ones(graph.num_nodes, dtype=torch.bool)
    return federate(graph, list(order.chunk(3)), mask, mask, mask)


@pytest.mark.parametrize(
    ("name", "aggregate", "exact_at_least", "proven_at_least"),
    [
        ("subset-sum", "normalised", 0.78, 0.77),
        ("row-space", "counts", 0.31, 0.30),
        ("integer-propagation", "counts", 0.34, 0.33),
    ],
)
def test_share_of_remote_neighbours_rebuilt_by_one_of_three_clients(
    cora: FederatedGraph, name: str, aggregate: str, exact_at_least: float, proven_at_least: float
) -> None:
    view = make_view(cora, Observer((0,)), aggregate=aggregate)
    module, cls = ATTACKS[name].split(":")
    result = getattr(importlib.import_module(module), cls)().run(
        view, rng=derive(0, "attack"), device=torch.device("cpu")
    )
    assert isinstance(result, Reconstruction) and result.proven is not None
    assert torch.equal(result.nodes, view.own[0].remote_nodes)
    exact = (result.rows == cora.x[result.nodes]).all(1)
    assert bool(exact[result.proven].all())
    assert exact.float().mean() >= exact_at_least
    assert result.proven.float().mean() >= proven_at_least
