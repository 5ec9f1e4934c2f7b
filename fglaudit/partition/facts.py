"""Facts about a partition: missing links and label heterogeneity as FedGT defines them (appendices E.5 and E.6)."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from fglaudit.graph import FederatedGraph, Graph


def partition_facts(graph: FederatedGraph, whole: Graph | None = None) -> dict[str, int | float | str | list[int]]:
    """Return counts per partition.

    ``missing_links``: undirected edges that no client's subgraph holds. They are counted among the edges of ``whole``
    if it is given, as the paper does, and else among those of ``graph``, from which edges at left-out nodes are already
    gone.

    ``label_heterogeneity``: mean cosine distance between the label distributions of two different clients; 0 with one
    client. ``label_heterogeneity_with_self`` also averages over the K pairs of a client with itself. The paper's tables
    do not say which; on Cora's largest component (where its missing links are counted) the second comes closer to its
    METIS figures.

    ``chance``: the share of the test nodes' most frequent class, the accuracy of always naming it.

    ``digest``: over which nodes each client holds; two trainings on the same split have no new clusters.
    """
    edges = graph.edge_index if whole is None else whole.edge_index
    edges = edges[:, edges[0] < edges[1]]
    heterogeneity = label_heterogeneity(graph)
    return {
        "clients": graph.num_clients,
        "nodes": [len(nodes) for nodes in graph.clients],
        "train_nodes": [int(mask.sum().item()) for mask in graph.train],
        "nodes_at_no_client": graph.num_nodes - len(torch.unique(torch.cat(graph.clients))),
        "edges": edges.shape[1],
        "missing_links": edges.shape[1] - int(_held_by_a_client(graph, edges).sum().item()),
        "label_heterogeneity": heterogeneity,
        "label_heterogeneity_with_self": heterogeneity * (graph.num_clients - 1) / graph.num_clients,
        **chance(graph),
        "digest": _digest(graph),
    }


def chance(graph: FederatedGraph) -> dict[str, float]:
    """Return under ``chance`` the accuracy of always naming the most frequent class of the test nodes; nothing where no
    label is tested."""
    tested = tested_labels(graph)
    return {"chance": float(torch.bincount(tested).max().item()) / len(tested)} if len(tested) else {}


def tested_labels(graph: FederatedGraph) -> Tensor:
    """Return the labels of all test places that have one."""
    tested = torch.cat([graph.y[ids][mask].flatten() for ids, mask in zip(graph.clients, graph.test, strict=True)])
    return tested[tested >= 0]


def _digest(graph: FederatedGraph) -> str:
    sizes = torch.tensor([len(nodes) for nodes in graph.clients])
    held = torch.cat([sizes, *graph.clients]).long().contiguous()
    return hashlib.blake2b(held.numpy().tobytes(), digest_size=8).hexdigest()


def _held_by_a_client(graph: FederatedGraph, edges: Tensor) -> Tensor:
    """Return whether some client holds both ends of each edge [E]."""
    sizes = torch.tensor([len(nodes) for nodes in graph.clients])
    client = torch.repeat_interleave(torch.arange(graph.num_clients), sizes)
    node = torch.cat(graph.clients)
    holders = torch.bincount(node, minlength=graph.num_nodes)
    if int(holders.max().item()) <= 1:
        owner = torch.full((graph.num_nodes,), -1)
        owner[node] = client
        return (owner[edges[0]] == owner[edges[1]]) & (owner[edges[0]] >= 0)
    held = torch.zeros(edges.shape[1], dtype=torch.bool)
    inside = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for nodes in graph.clients:
        inside[nodes] = True
        held |= inside[edges[0]] & inside[edges[1]]
        inside[nodes] = False
    return held


def label_heterogeneity(graph: FederatedGraph) -> float:
    """Return the mean cosine distance of label distributions over pairs of clients; unlabelled nodes are ignored."""
    unit = _label_directions(graph)
    pairs = graph.num_clients * (graph.num_clients - 1)
    # The sum of all cosines is the squared norm of the summed unit vectors: no K x K matrix for one client per node.
    total = unit.sum(0).square().sum() - unit.square().sum()
    return float(1 - total / pairs) if pairs else 0.0


def label_similarity(graph: FederatedGraph) -> Tensor:
    """Return the cosine of the label distributions of every pair of clients [K, K]; unlabelled nodes are ignored."""
    unit = _label_directions(graph)
    return unit @ unit.T


def _label_directions(graph: FederatedGraph) -> Tensor:
    """Return every client's counts of labels divided by their norm [K, C], zero for a client without labels."""
    sizes = torch.tensor([len(nodes) for nodes in graph.clients])
    client = torch.repeat_interleave(torch.arange(graph.num_clients), sizes)
    label = graph.y[torch.cat(graph.clients)]
    if label.dim() == 2:  # every sample of a node counts
        client, label = client.repeat_interleave(label.shape[1]), label.flatten()
    client, label = client[label >= 0], label[label >= 0]
    codes = torch.bincount(client * graph.num_classes + label, minlength=graph.num_clients * graph.num_classes)
    counts = codes.view(graph.num_clients, graph.num_classes).double()
    unit: Tensor = counts / counts.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return unit
