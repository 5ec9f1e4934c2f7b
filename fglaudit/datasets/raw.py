"""Data as it was read, before splits are chosen and edges made canonical, and the checks every source shares."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.errors import FglauditError, counted
from fglaudit.graph import Graph, canonical_edges, components, edges_among

SCALES = 100.0
"""Ratio of root mean squares of two columns' entries from which on there is a note."""


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
        notes.append(f"{name}: {counted(count, 'self-loop')} removed (protocols add their own)")
    if count := len(codes) - len(distinct):
        notes.append(f"{name}: {counted(count, 'duplicate edge')} removed")
    if count := edges.shape[1] - len(distinct):
        notes.append(f"{name}: directed edges made undirected ({counted(count, 'reverse edge')} added)")
    return edges, tuple(notes)


def row_normalised(x: Tensor) -> Tensor:
    """Divide every row of ``x`` [..., F] by its L1 norm; zero rows stay zero."""
    norm = x.abs().sum(-1, keepdim=True)
    return x / torch.where(norm == 0, torch.ones_like(norm), norm)


def standardised(x: Tensor) -> Tensor:
    """Give every column of ``x`` [..., F] a mean of 0 and a deviation of 1; columns of one value become 0."""
    rows = x.flatten(0, -2).double()
    centered = rows - rows.mean(0)
    spread = centered.square().mean(0).sqrt()
    varies = spread > 1e-6 * rows.abs().amax(0)
    return torch.where(varies, centered / torch.where(varies, spread, 1.0), 0.0).to(x.dtype).reshape(x.shape)


def scale_notes(x: Tensor) -> tuple[str, ...]:
    """Say where columns of ``x`` [N, F] differ in scale so far that the largest ones decide every figure of a row."""
    sizes = (x.square().sum(0) / (x != 0).sum(0).clamp(min=1)).sqrt()
    there = sizes[sizes > 0]
    if not len(there) or bool(there.max() <= SCALES * there.min()):
        return ()
    return (
        f"columns of features differ in scale by more than {SCALES:g}: an error within tolerance of the largest column"
        " may hide any error of the others, cosines show the largest alone, and training may fail; use features:"
        " standardised in a suite, or standardise them beforehand",
    )


def largest_component(graph: Graph) -> Graph:
    """Return the largest connected component of ``graph``, its nodes renumbered in their old order."""
    component = components(graph.edge_index, graph.num_nodes)
    nodes = (component == torch.bincount(component).argmax()).nonzero().squeeze(1)

    def kept(mask: Tensor | None) -> Tensor | None:
        return None if mask is None else mask[nodes]

    return Graph(
        x=graph.x[nodes],
        y=graph.y[nodes],
        edge_index=edges_among(nodes, graph.edge_index, graph.num_nodes),
        name=graph.name,
        train=kept(graph.train),
        val=kept(graph.val),
        test=kept(graph.test),
        clients=None if graph.clients is None else torch.unique(graph.clients[nodes], return_inverse=True)[1],
    )
