"""Views of FedGAT's messages simulated straight from the paper's definitions, node by node, independently of the
protocol's code.

Algorithm 1: every client uploads its rows; the server makes the matrices (or vectors) of every node and sends them to
its owner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from neighbor_sum_views import Recorded
from torch import Tensor

from fglaudit.facts import Additive, Field
from fglaudit.graph import FederatedGraph
from fglaudit.payloads import SERVER, MaskedMatrices, MaskedVectors, MessageBatch, Payload, RawFeatures
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.structure import Attention, Structure
from fglaudit.view import Auxiliary, Observer, PublicFacts, View
from fglaudit.wire.rehearsal import rehearsal


def closed_neighbourhood(graph: FederatedGraph, node: int) -> list[int]:
    row, column = graph.edge_index
    return sorted([node, *column[row == node].tolist()])


def unit_rows(x: Tensor) -> Tensor:
    """Rows scaled down to norm at most 1 (Assumption 3)."""
    unit: Tensor = x / x.norm(dim=1, keepdim=True).clamp(min=1)
    return unit


def matrices(h: Tensor, center: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """M1, M2, K1, K2 of a neighbourhood with rows ``h`` [b, F], float64; equations 9, 11 and 13."""
    b = len(h)
    basis = torch.linalg.qr(torch.randn(2 * b, 2 * b, generator=rng, dtype=torch.double))[0]
    r = 0.5 + 1.5 * float(torch.rand(1, generator=rng))
    first, second = basis[:, :b], basis[:, b:]
    u = torch.stack(
        [
            0.5 * (p.outer(p) + q.outer(q) + r * p.outer(q) + q.outer(p) / r)
            for p, q in zip(first.T.unbind(), second.T.unbind(), strict=True)
        ]
    )
    m1 = torch.einsum("s,jab->sab", h[center], u)
    m2 = torch.einsum("js,jab->sab", h, u)
    return m1, m2, math.sqrt(2) * first.sum(1), math.sqrt(2) * first @ h


def vectors(h: Tensor, center: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(M1', M2', K1, K2, K3) of Appendix F for rows ``h`` [b, F], float64."""
    b, features = h.shape
    order = torch.randperm(2 * b, generator=rng).reshape(b, 2)
    u = torch.zeros(b, 2 * b, dtype=torch.double)
    u.scatter_(1, order, 1.0)
    project = u.T @ u / 2
    away = torch.eye(2 * b, dtype=torch.double) - project
    mask1, mask2, mask3 = (torch.randn(features, 2 * b, generator=rng, dtype=torch.double) @ away for _ in range(3))
    mask5 = away @ torch.randn(2 * b, generator=rng, dtype=torch.double)
    m1 = mask1 + h[center].outer(u.sum(0))
    m2 = mask2 + h.T @ u
    return m1.T, m2.T, mask3.T + u.T @ h, project, mask5 + u.sum(0)


def masked_batches(
    graph: FederatedGraph, *, vector: bool = False, std: float = 0.0, seed: int = 0
) -> tuple[MessageBatch, ...]:
    """One batch of messages per neighbourhood size, float32, to the owners of the nodes."""
    rng = torch.Generator().manual_seed(seed)
    owner = graph.owner()
    h = unit_rows(graph.x.double())
    by_size: dict[int, list[tuple[int, tuple[Tensor, ...]]]] = {}
    for node in range(graph.num_nodes):
        if owner[node] < 0:
            continue
        members = closed_neighbourhood(graph, node)
        shuffled = [members[i] for i in torch.randperm(len(members), generator=rng).tolist()]
        make = vectors if vector else matrices
        parts = make(h[torch.tensor(shuffled)], shuffled.index(node), rng)
        by_size.setdefault(len(members), []).append((node, parts))
    batches = []
    for entries in by_size.values():
        nodes = torch.tensor([node for node, _ in entries])
        fields = [torch.stack([parts[i] for _, parts in entries]).float() for i in range(len(entries[0][1]))]
        fields = [field + std * torch.randn(field.shape, generator=rng) for field in fields]
        payload: Payload = MaskedVectors(nodes, *fields) if vector else MaskedMatrices(nodes, *fields)
        batches.append(MessageBatch(0, torch.full_like(nodes, SERVER), owner[nodes], payload))
    return tuple(batches)


def uploads(graph: FederatedGraph) -> MessageBatch:
    """Every client's rows, as it uploads them."""
    clients = torch.arange(graph.num_clients)
    nodes = torch.cat(graph.clients)
    splits = torch.tensor([0, *(len(ids) for ids in graph.clients)]).cumsum(0)
    payload = RawFeatures(nodes, unit_rows(graph.x)[nodes])
    return MessageBatch(0, clients, torch.full_like(clients, SERVER), payload, splits)


def masked_view(
    graph: FederatedGraph,
    observer: Observer,
    *,
    vector: bool = False,
    std: float = 0.0,
    seed: int = 0,
    batches: Sequence[MessageBatch] | None = None,
) -> View:
    """What ``observer`` has after pre-training."""
    if batches is None:
        batches = (uploads(graph), *masked_batches(graph, vector=vector, std=std, seed=seed))
    if not observer.wire:
        seen = torch.tensor(observer.parties)
        masks = [torch.isin(b.senders, seen) | torch.isin(b.receivers, seen) for b in batches]
        batches = tuple(b.select(m) for b, m in zip(batches, masks, strict=True) if bool(m.any()))
    name = "MaskedVectors" if vector else "MaskedMatrices"
    public = PublicFacts(
        protocol="fedgat",
        hyperparameters={},
        structure=Structure((Attention(degree=16, domain=2.0),)),
        defense="none",
        defense_parameters={},
        **graph.schema(),
        **rehearsal(FedGAT(variant="vector" if vector else "matrix")),
        facts=(Additive(Field(name, direction="down"), "gaussian", std),) if std else (),
    )
    return View(
        observer=observer,
        messages=Recorded(tuple(batches)),
        own=tuple(graph.client(k) for k in observer.clients),
        auxiliary=Auxiliary.empty(graph.num_features),
        public=public,
        topology=graph.edge_index if observer.topology else None,
        degrees=graph.degrees() if observer.degrees else None,
    )
