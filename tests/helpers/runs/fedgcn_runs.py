"""Graphs and a channel that the FedGCN tests share."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.facts import Additive
from fglaudit.graph import ClientGraph, FederatedGraph, Graph, canonical_edges, federate
from fglaudit.interfaces import LocalUpdate
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums, Payload

CPU = torch.device("cpu")


class PlainChannel:
    """Delivers what is sent and keeps a list of it; ``dropped`` lists directed cross edges (i, j) that i's owner
    drops."""

    def __init__(self, dropped: tuple[tuple[int, int], ...] = ()) -> None:
        self.dropped = dropped
        self.sent: list[MessageBatch] = []
        self.rounds: list[int] = []

    def prepare(self, client: ClientGraph) -> ClientGraph:
        pairs = zip(
            client.nodes[client.boundary[0]].tolist(), client.remote_nodes[client.boundary[1]].tolist(), strict=True
        )
        keep = torch.tensor([pair not in self.dropped for pair in pairs], dtype=torch.bool)
        return dataclasses.replace(client, boundary=client.boundary[:, keep])

    def prepares(self) -> bool:
        return bool(self.dropped)

    def local_update(self) -> LocalUpdate | None:
        return None

    def send(self, batch: MessageBatch) -> Payload:
        self.sent.append(batch)
        return batch.payload

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        return True

    def noise(self, payload: type[Payload]) -> Additive | None:
        return None

    def seals(self, payload: type[Payload]) -> bool:
        return False

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        return torch.full_like(center, -1)

    def round_done(self, round: int, rounds: int) -> None:
        self.rounds.append(round)

    def sums(self, *, up: bool) -> dict[tuple[int, int], Tensor]:
        """Rows by (client, node), of all batches of one direction."""
        rows = {}
        for batch in self.sent:
            if isinstance(batch.payload, NeighborSums) and bool((batch.receivers == SERVER).all()) == up:
                parties = (batch.senders if up else batch.receivers)[batch.entry_messages()]
                for client, node, row in zip(
                    parties.tolist(), batch.payload.nodes.tolist(), batch.payload.sums, strict=True
                ):
                    assert (client, node) not in rows
                    rows[client, node] = row
        return rows


def path_graph() -> FederatedGraph:
    """0 - 1 - 2 - 3 with clients {0, 1} and {2, 3}; features are the identity, so a sum shows its own weights."""
    edges = canonical_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    every = torch.ones(4, dtype=torch.bool)
    graph = Graph(torch.eye(4), torch.tensor([0, 0, 1, 1]), edges, "path")
    return federate(graph, [torch.tensor([0, 1]), torch.tensor([2, 3])], every, every, every)


def adjacency(graph: FederatedGraph, *, counts: bool = False) -> Tensor:
    """Dense float64 adjacency with self-loops [N, N], normalised unless ``counts``."""
    dense = torch.eye(graph.num_nodes, dtype=torch.float64)
    dense[graph.edge_index[0], graph.edge_index[1]] = 1
    degree = dense.sum(1)
    return dense if counts else dense / (degree[:, None] * degree[None, :]).sqrt()
