"""Do messages move with one node's row as a protocol states? ``releases`` say how far at most (``gain``), from which
noise is calibrated, and ``structure`` with which weights rows are added up, on which attacks rely."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.conformance.side_channels import KeptMessages, aligned
from fglaudit.context import REPORTING_NODE, Release
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums, Payload
from fglaudit.structure import Sums
from fglaudit.structure.messages import COUNTS, NORMALISED

_ROUNDOFF = 1e-3


@dataclass(frozen=True)
class _Moved:
    """Messages before and after the entry ``column`` of the row of ``node`` changed by ``by``; those of the first round
    that has their kind, on which nothing else depends."""

    node: int
    column: int
    by: float
    pairs: tuple[tuple[MessageBatch, MessageBatch], ...]

    def of(self, payload: type[Payload], by_server: bool) -> Iterator[tuple[MessageBatch, MessageBatch]]:
        listed = [(a, b) for a, b in self.pairs if type(a.payload) is payload and _from_server(a) == by_server]
        return ((a, b) for a, b in listed if a.round == listed[0][0].round)


def misstated(protocol: FederatedProtocol, graph: FederatedGraph, first: KeptMessages) -> str:
    """Return in words what one row moves otherwise than stated; empty if nothing was seen to.

    Args:
        first: the messages of a training of ``protocol`` on ``graph`` without a defense.
    """
    releases = [r for r in protocol.releases(graph) if _bounded(r)]
    sums = protocol.structure(graph).get(Sums)
    if graph.x.dim() != 2 or not (releases or sums is not None):
        return ""
    for moved in _trials(protocol, graph, first):
        for release in releases:
            length = _length(moved, release) / abs(moved.by)
            if release.gain is not None and length > release.gain * (1 + _ROUNDOFF):
                return (
                    f"`releases` bound how far a row that changes by 1 moves {release.payload.__name__}; the gain is"
                    f" {release.gain:.4g}, and the row of node {moved.node} moves it by {length:.4g}"
                )
        if sums is not None and (found := _other_weight(moved, sums, graph)):
            return found
    return ""


def _bounded(release: Release) -> bool:
    return release.gain is not None and release.row_norm is None and release.unit in ("node", REPORTING_NODE)


def _trials(protocol: FederatedProtocol, graph: FederatedGraph, first: KeptMessages) -> Iterator[_Moved]:
    """Yield what rows of the nodes with the most, with the fewest and with a middle number of neighbours move."""
    order = graph.degrees().argsort(descending=True).tolist()
    for node in dict.fromkeys((order[0], order[len(order) // 2], order[-1])):
        x = graph.x.clone()
        x[node, 0] = 1 - x[node, 0] if graph.features is FeatureKind.BINARY else x[node, 0] + 1
        other = KeptMessages.with_rows(protocol, graph, x)
        pairs = [(a, b) for a, b in zip(first.batches, other.batches, strict=False) if aligned(a, b)]
        yield _Moved(node, 0, float(x[node, 0] - graph.x[node, 0]), tuple(pairs))


def _from_server(batch: MessageBatch) -> bool:
    return bool((batch.senders == SERVER).all())


def _length(moved: _Moved, release: Release) -> float:
    """Return by how much the messages of one release move, in L2 norm over all of them."""
    total = 0.0
    for before, after in moved.of(release.payload, release.by_server):
        fields = after.payload.tensors()
        for name, value in before.payload.tensors().items():
            if not value.is_meta and value.is_floating_point() and (not release.fields or name in release.fields):
                total += float((fields[name].double() - value.double()).square().sum())
    return math.sqrt(total)


def _other_weight(moved: _Moved, stated: Sums, graph: FederatedGraph) -> str:
    """Return which sum takes the row with another weight than ``stated``; parts may leave it out."""
    weights = _weights(moved.node, stated.weighting, graph)
    for before, after in moved.of(NeighborSums, by_server=False):
        assert isinstance(before.payload, NeighborSums) and isinstance(after.payload, NeighborSums)
        nodes = before.payload.nodes.cpu()
        step = (after.payload.sums - before.payload.sums)[:, moved.column].double().cpu() / moved.by
        wrong = (step.abs() > _ROUNDOFF) & ~torch.isclose(step, weights[nodes], rtol=_ROUNDOFF, atol=_ROUNDOFF)
        if bool(wrong.any()):
            at = int(wrong.nonzero()[0])
            return (
                f"`structure` states {stated.weighting} sums, in which the row of node {moved.node} has the weight"
                f" {float(weights[nodes[at]]):.4g} at node {int(nodes[at])}; it is {float(step[at]):.4g} there"
            )
    return ""


def _weights(node: int, weighting: str, graph: FederatedGraph) -> Tensor:
    """Return the weight [N] of the row of ``node`` in the sum of every node; 0 where it is no neighbour."""
    near = torch.zeros(graph.num_nodes, dtype=torch.float64)
    near[node] = 1
    ends = graph.edge_index
    near[ends[1][ends[0] == node]] = 1
    near[ends[0][ends[1] == node]] = 1
    if weighting == COUNTS:
        return near
    closed = graph.degrees().double() + 1
    return near / (closed * closed[node]).sqrt() if weighting == NORMALISED else near / closed
