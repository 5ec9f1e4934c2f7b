"""Compares what a defense makes of a client's graph and of its neighbours' groups with the facts that it states."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fglaudit.facts import EDGES, DegreeBound, DroppedEdges, Fact, Merged
from fglaudit.graph import ClientGraph
from fglaudit.privacy.degree_bound import bound_degrees

EDGE_FIELDS = ("edge_index", "degrees", "remote_nodes", "remote_degrees", "boundary")


def copied(client: ClientGraph) -> ClientGraph:
    """Return ``client`` with tensors of its own, so that edits in place show."""
    tensors = {f.name: getattr(client, f.name) for f in dataclasses.fields(client)}
    own: dict[str, Any] = {name: value.clone() for name, value in tensors.items() if isinstance(value, Tensor)}
    return dataclasses.replace(client, **own)


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two optional tensors have equal shapes, types and entries; entries that are no numbers equal each
    other."""
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_meta and other.is_meta:  # a payload that is counted and never made has no entries
        return True
    if torch.equal(one, other):
        return True
    return bool(((one == other) | (one.isnan() & other.isnan())).all()) if one.is_floating_point() else False


def changed_edges(before: ClientGraph, after: ClientGraph, facts: Iterable[Fact]) -> str | None:
    """Return in words how the edges of ``after`` differ from what ``facts`` make of ``before``, or None."""
    stated = [fact for fact in facts if fact.target == EDGES]
    known = all(isinstance(fact, DroppedEdges | DegreeBound | Merged) for fact in stated)
    expected = before
    for fact in stated:
        if isinstance(fact, DroppedEdges):
            expected = _without_few(expected, fact.fewest)
        elif isinstance(fact, DegreeBound):
            expected = bound_degrees(expected, fact.bound, fact.seed)
    if not known:
        return None  # a fact that nobody here knows; no built-in attack models it
    other = [name for name in EDGE_FIELDS if not same(getattr(expected, name), getattr(after, name))]
    return f"{', '.join(other)} of a client are not what is stated" if other else None


def _without_few(client: ClientGraph, fewest: int) -> ClientGraph:
    """Return ``client`` without the cross-client edges of own nodes that have fewer than ``fewest`` of them."""
    own, position = client.boundary
    many = torch.bincount(own, minlength=len(client.nodes)) >= fewest
    used = torch.zeros(len(client.remote_nodes), dtype=torch.bool)
    used[position[many[own]]] = True
    renumbered = used.cumsum(0) - 1
    degrees = client.remote_degrees
    return dataclasses.replace(
        client,
        remote_nodes=client.remote_nodes[used],
        remote_degrees=None if degrees is None else degrees[used],
        boundary=torch.stack([own[many[own]], renumbered[position[many[own]]]]),
    )


def changed_groups(center: Tensor, neighbor: Tensor, groups: Tensor, facts: Iterable[Fact]) -> str | None:
    """Return in words how ``groups`` [E] of the edges ``center <- neighbor`` differ from what ``facts`` say, or
    None."""
    stated = [fact for fact in facts if fact.target == EDGES]
    if not all(isinstance(fact, DroppedEdges | DegreeBound | Merged) for fact in stated):
        return None
    if groups.shape != center.shape:
        return f"groups of {tuple(groups.shape)} edges where there are {tuple(center.shape)}"
    sizes = [fact.size for fact in stated if isinstance(fact, Merged)]
    if not sizes:
        return "neighbours are merged" if bool((groups != -1).any()) else None
    order = torch.argsort(neighbor, stable=True)
    order = order[torch.argsort(center[order], stable=True)]
    _, place, count = torch.unique_consecutive(center[order], return_inverse=True, return_counts=True)
    rank = torch.arange(len(order), device=order.device) - (count.cumsum(0) - count)[place]
    within = torch.minimum(rank // sizes[-1], (count // sizes[-1]).clamp(min=1)[place] - 1)
    stated_groups = place * (len(order) + 1) + within
    pairs = torch.stack([stated_groups, groups[order]])
    alone = bool((groups == -1).any())
    kinds = [len(torch.unique(pairs, dim=1).T), len(torch.unique(pairs[0])), len(torch.unique(pairs[1]))]
    return "neighbours are merged in other groups than is stated" if alone or len(set(kinds)) > 1 else None
