"""A client's networks written out: dense adjacencies, random weights, and the maps of one client's model."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.nn.weights import unflatten
from fglaudit.rng import derive

Weights = dict[str, Tensor]


def clients_of(graph: FederatedGraph) -> list[ClientGraph]:
    return [graph.client(k) for k in range(graph.num_clients)]


def dense(client: ClientGraph) -> Tensor:
    adjacency = torch.zeros(len(client.nodes), len(client.nodes), dtype=torch.float64)
    adjacency[client.edge_index[0], client.edge_index[1]] = 1
    return adjacency


def normalised(client: ClientGraph) -> Tensor:
    adjacency = dense(client) + torch.eye(len(client.nodes), dtype=torch.float64)
    scale = adjacency.sum(1).rsqrt()
    return scale.unsqueeze(1) * adjacency * scale


def random_weights(layout: dict[str, tuple[int, ...]], clients: int) -> Weights:
    vectors = torch.stack([initial_model(layout, derive(0, "model", k)) for k in range(clients)]).double()
    return unflatten(
        vectors + 0.1 * torch.randn(vectors.shape, generator=derive(0, "shift"), dtype=torch.float64), layout
    )


class OneClient:
    """The maps of one client's model, on rows [m, d]."""

    def __init__(self, weights: Weights, k: int) -> None:
        self.weights = {name: weight[k] for name, weight in weights.items()}

    def affine(self, name: str, rows: Tensor) -> Tensor:
        return rows @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def norm(self, name: str, rows: Tensor) -> Tensor:
        plain = (rows - rows.mean(-1, keepdim=True)) / (rows.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return plain * self.weights[f"{name}.scale"] + self.weights[f"{name}.shift"]
