"""Views of neighbour sums simulated straight from the definition, in float32, independently of the protocol's code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from fglaudit.facts import Additive, Field
from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.structure import Structure, Sums
from fglaudit.view import Auxiliary, Observer, PublicFacts, View
from fglaudit.wire.rehearsal import rehearsal


@dataclass(frozen=True)
class Recorded:
    batches: tuple[MessageBatch, ...]

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        return (batch for batch in self.batches if isinstance(batch.payload, payload))


def federated(x: Tensor, edges: Sequence[tuple[int, int]], clients: Sequence[Sequence[int]]) -> FederatedGraph:
    n = len(x)
    mask = torch.ones(n, dtype=torch.bool)
    edge_index = canonical_edges(torch.tensor(edges).T.reshape(2, -1), n)
    graph = Graph(x, torch.zeros(n, dtype=torch.long), edge_index, "test", mask, mask, mask)
    return federate(graph, [torch.tensor(c) for c in clients], mask, mask, mask)


def random_federated(
    seed: int, *, nodes: int = 60, features: int = 40, clients: int = 3, density: float = 0.08
) -> FederatedGraph:
    rng = torch.Generator().manual_seed(seed)
    x = (torch.rand(nodes, features, generator=rng) < density).float()
    x[torch.arange(nodes), torch.randint(features, (nodes,), generator=rng)] = 1
    pairs = torch.randint(nodes, (2 * nodes, 2), generator=rng)
    order = torch.randperm(nodes, generator=rng)
    edges = [(int(a), int(b)) for a, b in pairs.tolist()]
    return federated(x, edges, [part.tolist() for part in order.chunk(clients)])


def dense_weights(graph: FederatedGraph, aggregate: str) -> Tensor:
    """A with self-loops, [N, N], float64."""
    adjacency = torch.eye(graph.num_nodes, dtype=torch.double)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    if aggregate == "counts":
        return adjacency
    degree = adjacency.sum(1)
    if aggregate == "row-mean":
        return adjacency / degree[:, None]
    return adjacency / (degree[:, None] * degree[None, :]).sqrt()


def _batch(messages: list[tuple[int, int, Tensor, Tensor]]) -> MessageBatch:
    senders, receivers = (torch.tensor([m[i] for m in messages]) for i in (0, 1))
    splits = torch.tensor([0, *(len(m[2]) for m in messages)]).cumsum(0)
    payload = NeighborSums(torch.cat([m[2] for m in messages]), torch.cat([m[3] for m in messages]))
    return MessageBatch(0, senders, receivers, payload, splits)


def neighbor_sums(
    graph: FederatedGraph, *, hops: int = 1, aggregate: str = "normalised", std: float = 0.0
) -> tuple[MessageBatch, ...]:
    """All uploads and all deliveries of a pre-training round."""
    weights = dense_weights(graph, aggregate).float()
    owner = graph.owner()
    rng = torch.Generator().manual_seed(7)
    total = torch.zeros(graph.num_nodes, graph.num_features)
    up, down = [], []
    for m in range(graph.num_clients):
        here = owner == m
        nodes = (weights[:, here] > 0).any(1).nonzero().squeeze(1)
        part = (weights[:, here] @ graph.x[here])[nodes]
        part = part + std * torch.randn(part.shape, generator=rng)
        total.index_add_(0, nodes, part)
        up.append((m, SERVER, nodes, part))
    for k in range(graph.num_clients):
        needed = owner == k
        if hops > 1:
            needed = (weights[:, needed] > 0).any(1)
        nodes = needed.nonzero().squeeze(1)
        down.append((SERVER, k, nodes, total[nodes]))
    return _batch(up), _batch(down)


def make_view(
    graph: FederatedGraph, observer: Observer, *, hops: int = 1, aggregate: str = "normalised", std: float = 0.0
) -> View:
    """What ``observer`` has after the sums were exchanged."""
    batches = neighbor_sums(graph, hops=hops, aggregate=aggregate, std=std)
    if not observer.wire:
        seen = torch.tensor(observer.parties)
        batches = tuple(b.select(torch.isin(b.senders, seen) | torch.isin(b.receivers, seen)) for b in batches)
    own = tuple(graph.client(k) for k in observer.clients)
    if observer.degrees is False:
        own = tuple(dataclasses.replace(c, remote_degrees=None) for c in own)
    known: tuple[Weights, ...] = get_args(Weights)
    rehearsed = next((weights for weights in known if weights == aggregate), None)
    public = PublicFacts(
        protocol="fedgcn",
        hyperparameters={},
        structure=Structure((Sums(aggregate, hops),)),
        defense="none",
        defense_parameters={},
        **graph.schema(),
        facts=(Additive(Field("NeighborSums", "sums", "up"), "gaussian", std),) if std else (),
        **({} if rehearsed is None else rehearsal(FedGCN(hops=hops, aggregate=rehearsed))),
    )
    return View(
        observer=observer,
        messages=Recorded(batches),
        own=own,
        auxiliary=Auxiliary.empty(graph.num_features),
        public=public,
        topology=graph.edge_index if observer.topology else None,
        degrees=graph.degrees() if observer.degrees else None,
    )
