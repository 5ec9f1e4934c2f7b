"""Data as it was read, before splits are chosen and edges made canonical, and the checks every source shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.graph import Graph, canonical_edges, edges_among


@dataclass(frozen=True)
class RawGraph:
    """Tensors of one source.

    Attributes:
        x: features [N, F] float32.
        y: labels [N] int64; -1 means unlabelled.
        edge_index: [2, E] as read: perhaps directed, with repeats or self-loops.
        train, val, test: masks [N, S] for S public splits, or None.
        clients: number of the client that holds each node [N], or None.
        notes: on the files themselves.
    """

    x: Tensor
    y: Tensor
    edge_index: Tensor
    train: Tensor | None = None
    val: Tensor | None = None
    test: Tensor | None = None
    clients: Tensor | None = None
    notes: tuple[str, ...] = ()


def to_graph(raw: RawGraph, name: str, split_index: int) -> tuple[Graph, tuple[str, ...]]:
    """Return the canonical graph with public split ``split_index``, and a note for each change of its edges."""
    edge_index, notes = canonical_with_notes(raw.edge_index, raw.x.shape[0], name)
    splits = 0 if raw.train is None else raw.train.shape[1]
    if split_index >= max(splits, 1):
        raise FglauditError(
            f"split_index must be below the number of public splits; got {split_index}, {name} has {splits}; lower"
            " split_index"
        )

    def chosen(mask: Tensor | None) -> Tensor | None:
        return None if mask is None else mask[:, split_index].contiguous()

    graph = Graph(
        x=raw.x,
        y=raw.y,
        edge_index=edge_index,
        name=name,
        train=chosen(raw.train),
        val=chosen(raw.val),
        test=chosen(raw.test),
        clients=raw.clients,
    )
    return graph, (*raw.notes, *notes)


def canonical_with_notes(edge_index: Tensor, num_nodes: int, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """Return canonical edges [2, E] and a note for each kind of edge that had to be changed."""
    row, col = edge_index
    loops = row == col
    codes = (row * num_nodes + col)[~loops]
    distinct = torch.unique(codes)
    edges = canonical_edges(edge_index, num_nodes)
    notes = []
    if count := int(loops.sum().item()):
        notes.append(f"{name}: {count} self-loops removed (protocols add their own)")
    if count := len(codes) - len(distinct):
        notes.append(f"{name}: {count} duplicate edges removed")
    if count := edges.shape[1] - len(distinct):
        notes.append(f"{name}: directed edges made undirected ({count} reverse edges added)")
    return edges, tuple(notes)


def row_normalised(x: Tensor) -> Tensor:
    """Divide every row of ``x`` [..., F] by its L1 norm; zero rows stay zero."""
    norm = x.abs().sum(-1, keepdim=True)
    return x / torch.where(norm == 0, torch.ones_like(norm), norm)


def largest_component(graph: Graph) -> Graph:
    """Return the largest connected component of ``graph``, its nodes renumbered in their old order."""
    n = graph.num_nodes
    row, col = graph.edge_index.numpy()
    adjacency = coo_array((np.ones(len(row), dtype=np.int8), (row, col)), shape=(n, n))
    component = torch.from_numpy(connected_components(adjacency, directed=False)[1]).long()
    nodes = (component == torch.bincount(component).argmax()).nonzero().squeeze(1)

    def kept(mask: Tensor | None) -> Tensor | None:
        return None if mask is None else mask[nodes]

    return Graph(
        x=graph.x[nodes],
        y=graph.y[nodes],
        edge_index=edges_among(nodes, graph.edge_index, n),
        name=graph.name,
        train=kept(graph.train),
        val=kept(graph.val),
        test=kept(graph.test),
        clients=None if graph.clients is None else torch.unique(graph.clients[nodes], return_inverse=True)[1],
    )
