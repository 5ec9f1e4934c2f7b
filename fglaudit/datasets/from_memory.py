"""Graphs that a user has in memory: this package's own, PyTorch Geometric's ``Data``, networkx's, or arrays by name.

They pass the same checks as a file does (:mod:`fglaudit.datasets.npz`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import torch

from fglaudit.datasets.npz import (
    CLIENTS,
    KEYS,
    MASKS,
    REQUIRED,
    checked,
    checked_clients,
    unused_notes,
    unused_of_edges,
)
from fglaudit.datasets.npz_archive import Array
from fglaudit.datasets.raw import RawGraph, scale_notes, to_graph
from fglaudit.errors import FglauditError, shown
from fglaudit.graph import Graph

_ACCEPTED = (
    "a fglaudit Graph, a torch-geometric Data, a networkx graph whose nodes have x and y, or a mapping of arrays"
)


_CONVERSIONS = {
    "HeteroData": "take data.to_homogeneous(), which needs an x of one width and a y, or a mapping of one kind of node",
    "DGLGraph": "give {'x': g.ndata['feat'], 'y': g.ndata['label'], 'edge_index': torch.stack(g.edges())}",
    "DataFrame": (
        "give {'x': nodes[FEATURES].to_numpy(), 'y': nodes[LABEL].to_numpy(), 'edge_index': edges[[SOURCE,"
        " TARGET]].to_numpy().T} with nodes numbered 0, 1, ..., or write CSV files and take fglaudit import"
    ),
    "Dataset": "take one of its graphs: dataset[0]",
    "list": "take one graph of it",
    "tuple": "give {'x': ..., 'edge_index': ..., 'y': ...}",
}
"""What to do with graphs of other kinds, by the name of a class of theirs."""
_NODE_ATTRIBUTES = ("x", "y", CLIENTS)


def graph_from(source: Any, name: str = "graph") -> tuple[Graph, tuple[str, ...]]:
    """Return ``source`` as a graph, with a note on what of it is not used (weights of edges, attributes of other names)
    and for every kind of edge that had to be changed.

    Args:
        source: a :class:`fglaudit.graph.Graph`; an object with attributes (``torch_geometric.data.Data``) or a mapping
            with keys x [N, F], edge_index [2, E], y [N] and, all or none, train_mask, val_mask, test_mask [N] (of masks
            [N, splits] the first one counts, and a note says so), perhaps clients [N]; or a networkx graph whose nodes
            have attributes ``x`` (a row of numbers), ``y`` (a class number) and perhaps ``clients`` (the number of the
            one that holds it).

    Raises:
        FglauditError: it is none of these, or breaks a rule of own graphs.
    """
    if isinstance(source, Graph):
        return replace(source, x=source.x.float()), ()  # in the precision of weights, as from every other source
    if isinstance(source, nx.Graph):
        arrays, unused = _networkx_arrays(source), _networkx_unused(source)
    elif isinstance(source, Mapping):
        arrays = {key: _array(value, key) for key, value in source.items() if key in KEYS}
        unused = unused_notes(source)
    elif all(hasattr(source, key) for key in REQUIRED):
        there = {key: getattr(source, key, None) for key in KEYS}
        arrays = {key: _array(value, key) for key, value in there.items() if value is not None}
        keys = getattr(source, "keys", ())  # a method of torch-geometric's Data, a list in its older versions
        unused = unused_notes(keys() if callable(keys) else keys)
    else:
        raise FglauditError(f"a graph is {_ACCEPTED}; got {type(source).__name__}; {_conversion(source)}")
    masks = {key: arrays.pop(key) for key in MASKS if key in arrays}
    arrays |= {key: mask[:, 0] if mask.ndim == 2 else mask for key, mask in masks.items()}
    several = max((mask.shape[1] for mask in masks.values() if mask.ndim == 2), default=1)
    split = (f"of {several} splits in the masks the first one is used; pass mask[:, i] for another",) * (several > 1)
    raw: RawGraph = checked(arrays, name)
    graph, notes = to_graph(raw, name, 0)
    return graph, (*unused, *split, *notes, *scale_notes(graph.x))


def _conversion(source: Any) -> str:
    """Return how to make a graph of what is none yet."""
    kinds = (_CONVERSIONS.get(kind.__name__) for kind in type(source).__mro__)
    return next(filter(None, kinds), _CONVERSIONS["tuple"])


def content_digest(graph: Graph) -> str:
    """Return the SHA-256 of a graph's content: equal graphs are one data set, wherever they come from."""
    digest = hashlib.sha256()
    for value in (graph.x, graph.y, graph.edge_index, graph.train, graph.val, graph.test):
        if value is None:
            digest.update(b"none")
            continue
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().cpu().numpy().tobytes())
    if graph.clients is not None:
        digest.update(b"clients" + graph.clients.cpu().numpy().tobytes())
    return digest.hexdigest()


def clients_of(value: Any, nodes: int) -> torch.Tensor:
    """Return who holds each node [N] as a tensor, checked.

    Raises:
        FglauditError: not a whole number per node, or clients are not numbered 0, 1, ... without a gap.
    """
    return checked_clients(_array(value, CLIENTS), nodes)


def _array(value: Any, key: str) -> Array:
    try:
        if isinstance(value, torch.Tensor):
            found = value.detach().cpu().to_dense().numpy()
        else:
            found = value.toarray() if hasattr(value, "toarray") else np.asarray(value)  # scipy's sparse arrays
    except (TypeError, ValueError) as error:
        raise FglauditError(f"{key} must be an array of numbers; {error}; convert it") from error
    if found.dtype == object:
        raise FglauditError(f"{key} must be an array of numbers; its rows differ in length or type; fill them in")
    return found


def _networkx_arrays(graph: Any) -> dict[str, Array]:
    """Return x, y and edges of a networkx graph; nodes are numbered in the graph's own order."""
    nodes = list(graph.nodes)
    keys = ("x", "y", *([CLIENTS] if any(CLIENTS in graph.nodes[node] for node in nodes) else []))
    for key in keys:
        without = [node for node in nodes if key not in graph.nodes[node]]
        if without:
            raise FglauditError(
                f"every node of a networkx graph needs an attribute {key!r}; {len(without)} of {len(nodes)} have none,"
                f" the first is {without[0]!r}; add it with networkx.set_node_attributes"
            )
    number = {node: i for i, node in enumerate(nodes)}
    pairs = [(number[a], number[b]) for a, b in graph.edges()]
    if not graph.is_directed():  # an undirected graph lists every edge once: that its reverse is missing is no change
        pairs += [(b, a) for a, b in dict.fromkeys(pairs) if a != b]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return {**{key: _array([graph.nodes[node][key] for node in nodes], key) for key in keys}, "edge_index": edges}


def _networkx_unused(graph: Any) -> tuple[str, ...]:
    on_edges = {str(key): None for _, _, data in graph.edges(data=True) for key in data}
    on_nodes = {str(key): None for _, data in graph.nodes(data=True) for key in data if key not in _NODE_ATTRIBUTES}
    others = ", ".join(map(shown, on_nodes))
    read = ", ".join(_NODE_ATTRIBUTES)
    of_nodes = (f"not used of nodes: {others}; what is read is {read}",) if others else ()
    return (*unused_of_edges(on_edges), *of_nodes)
