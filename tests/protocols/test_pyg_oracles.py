"""The centralized baselines against plain torch-geometric models, on sets where a slip would show: Photo, Computers,
Chameleon, Squirrel.

Equal settings are equal numbers here: no dropout, the same first weights, full batches, so that nothing is left to
chance but rounding, and one training each is enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric import nn as pyg
from torch_geometric.utils import to_torch_csr_tensor

from fglaudit.datasets import DatasetSpec
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.nn.gat import initial_model, unit_ball
from fglaudit.nn.weights import gcn_layout, glorot, unflatten
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.baselines.appnp import APPNP
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.baselines.graphsage import GraphSAGE
from fglaudit.reproduce.trainings import Training, trained
from fglaudit.rng import derive, split

ROOT = Path(os.environ.get("FGLAUDIT_DATA") or "../shared/data").resolve()
SETS = {"photo": "amazon", "computers": "amazon", "chameleon": "wikipedia", "squirrel": "wikipedia"}
HIDDEN, MOST_BYTES = 16, 6e9
ADAM: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.02, "weight_decay": 5e-4, "dropout": 0.0}


@cache
def dataset(name: str) -> DatasetSpec:
    own: dict[str, Any] = {"split": "random", "train": 0.2, "val": 0.2, "test": 0.6} if SETS[name] == "amazon" else {}
    return DatasetSpec(name, str(ROOT), "row-normalised", **own)


def federated(name: str) -> FederatedGraph:
    spec = dataset(name)
    return PartitionSpec("dirichlet", clients=3, beta=100.0).apply(spec.load(), spec, derive(0, "partition"))


class Oracle(nn.Module):
    """Two layers of torch-geometric, without biases."""

    def __init__(self, kind: str, graph: FederatedGraph) -> None:
        super().__init__()
        features, classes = graph.num_features, graph.num_classes
        start, self.kind = split(derive(0, "train"), "weights"), kind
        if kind == "gat":
            shape = GAT(**MODELS[kind][1]).shape()
            drawn = drawn_by(initial_model, shape.layout(features, classes), start)
            self.first = pyg.GATConv(features, 8, heads=8, bias=False)
            self.second = pyg.GATConv(64, classes, heads=1, concat=False, bias=False)
            for layer, name in ((self.first, "layers.0"), (self.second, "layers.1")):
                layer.lin.weight.data = drawn[f"{name}.weight"].T.contiguous()
                layer.att_dst.data = drawn[f"{name}.attention_own"].unsqueeze(0)
                layer.att_src.data = drawn[f"{name}.attention_neighbor"].unsqueeze(0)
        elif kind == "graphsage":
            drawn = drawn_by(glorot, GraphSAGE(**MODELS[kind][1]).layout(features, classes), start)
            self.first, self.second = (
                pyg.SAGEConv(features, HIDDEN, bias=False),
                pyg.SAGEConv(HIDDEN, classes, bias=False),
            )
            for layer, name in ((self.first, "layers.0"), (self.second, "layers.1")):
                layer.lin_l.weight.data = drawn[f"{name}.neighbour"].T.contiguous()
                layer.lin_r.weight.data = drawn[f"{name}.self"].T.contiguous()
        else:
            drawn = drawn_by(glorot, gcn_layout(features, HIDDEN, classes, 2), start)
            self.first, self.second = (
                (pyg.GCNConv(features, HIDDEN, bias=False), pyg.GCNConv(HIDDEN, classes, bias=False))
                if kind == "gcn"
                else (nn.Linear(features, HIDDEN, bias=False), nn.Linear(HIDDEN, classes, bias=False))
            )
            for layer, weight in zip((self.first, self.second), drawn.values(), strict=True):
                (layer.lin if kind == "gcn" else layer).weight.data = weight.T.contiguous()
        self.propagation = pyg.APPNP(10, 0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        between = functional.elu if self.kind == "gat" else functional.relu
        scores: Tensor = (
            self.propagation(self.second(between(self.first(x))), edge_index)
            if self.kind == "appnp"
            else self.second(between(self.first(x, edge_index)), edge_index)
        )
        return scores


def drawn_by(draw: Callable[..., Tensor], layout: Any, rng: torch.Generator) -> dict[str, Tensor]:
    return {name: w.squeeze(0).clone() for name, w in unflatten(draw(layout, rng).unsqueeze(0), layout).items()}


def oracle_accuracy(kind: str, graph: FederatedGraph, fields: dict[str, Any]) -> float:
    torch.manual_seed(0)  # what it draws is overwritten
    model = Oracle(kind, graph)
    x = unit_ball(graph.x) if kind == "gat" else graph.x
    train, test = (torch.zeros(graph.num_nodes, dtype=torch.bool) for _ in range(2))
    for nodes, of_train, of_test in zip(graph.clients, graph.train, graph.test, strict=True):
        train[nodes[of_train]], test[nodes[of_test]] = True, True
    rate = fields["learning_rate"]
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    if fields.get("optimizer") == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=fields["weight_decay"])
    edges = graph.edge_index if kind == "gat" else to_torch_csr_tensor(graph.edge_index, size=(graph.num_nodes,) * 2)
    for _ in range(fields["rounds"] * fields["local_steps"]):
        optimizer.zero_grad()
        functional.cross_entropy(model(x, edges)[train], graph.y[train]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        hits = model(x, edges).argmax(1)[test] == graph.y[test]
    return 100 * float(hits.float().mean())


MODELS: dict[str, tuple[type[FederatedProtocol], dict[str, Any]]] = {
    "gcn": (
        GCN,
        {"hidden": HIDDEN, "rounds": 2, "local_steps": 20, **ADAM, "learning_rate": 0.1, "weight_decay": 5e-5},
    ),
    "gat": (GAT, {"rounds": 1, "local_steps": 20, "feature_dropout": 0.0, **ADAM, "learning_rate": 0.1}),
    "graphsage": (
        GraphSAGE,
        {"hidden": HIDDEN, "rounds": 4, "local_steps": 15, "learning_rate": 20.0, "choice": "last"},
    ),
    "appnp": (APPNP, {"hidden": HIDDEN, "rounds": 4, "local_steps": 25, "learning_rate": 60.0, "choice": "last"}),
}


def peak_bytes(*, reset: bool = False) -> float:
    """Return the most memory that this process has held since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line for line in lines if line.startswith("VmHWM")).split()[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", SETS)
def test_as_accurate_as_torch_geometric(name: str, kind: str) -> None:
    if not (ROOT / SETS[name]).is_dir():
        pytest.skip(f"needs the raw files of {name} under {ROOT}; set FGLAUDIT_DATA")
    graph = federated(name)
    protocol, fields = MODELS[kind]
    measurable = os.access("/proc/self/clear_refs", os.W_OK)
    if measurable:
        peak_bytes(reset=True)
    outcome, _ = trained(
        Training(dataset(name), PartitionSpec("dirichlet", clients=3, beta=100.0), protocol(**fields)), 0
    )
    if measurable:
        assert peak_bytes() < MOST_BYTES
    ours, theirs = 100 * outcome.whole_test_set, oracle_accuracy(kind, graph, fields)
    chance = 100 * float(torch.bincount(graph.y).max()) / graph.num_nodes
    assert theirs > chance + 3, "a model that has learned nothing compares nothing"
    assert abs(ours - theirs) < 1
