"""Building blocks of self-tests: messages held in memory, rows drawn from the prior, planted cross-client edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.feature_prior import feature_prior
from fglaudit.graph import ClientGraph, FeatureKind
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.view import Auxiliary, View

_BLIND_DENSITY = 0.02
_FEWEST_ENTRIES = 3


@dataclass(frozen=True)
class MemoryMessages:
    """Messages held in memory."""

    batches: tuple[MessageBatch, ...]

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload, in order."""
        return (batch for batch in self.batches if isinstance(batch.payload, payload))


def planted_rows(view: View, nodes: Tensor, rng: torch.Generator) -> Tensor:
    """Draw rows for ``nodes`` from the prior [R, F]; discrete rows have at least three entries (or all F)."""
    prior = feature_prior(view, nodes)
    if view.public.features is FeatureKind.REAL:
        noise = torch.randn(prior.mean.shape, generator=rng, dtype=torch.double)
        return (prior.mean + prior.variance.sqrt() * noise).float()
    chance = prior.mean if prior.informed else torch.full_like(prior.mean, _BLIND_DENSITY)
    score = torch.rand(chance.shape, generator=rng, dtype=torch.double)
    rows = (score < chance).float()
    extra = score.topk(min(_FEWEST_ENTRIES, score.shape[1]), dim=1, largest=False).indices
    rows.scatter_(1, extra, 1.0)
    return rows / rows.sum(1, keepdim=True) if view.public.features is FeatureKind.SCALED_BINARY else rows


def without_known_rows(auxiliary: Auxiliary) -> Auxiliary:
    """Return ``auxiliary`` with no row left."""
    return dataclasses.replace(auxiliary, nodes=auxiliary.nodes[:0], x=auxiliary.x[:0], y=auxiliary.y[:0])


def planted_graph(view: View, pairs: Tensor, *, inner_edges: bool) -> tuple[View, Tensor]:
    """Return ``view`` without known rows and defense, with planted cross-client edges, and all edges [2, E].

    Args:
        pairs: (own node, remote node) of the cross-client edges [2, P].
        inner_edges: whether the edges between the observer's own nodes stay.
    """
    n, own = view.public.num_nodes, view.own
    if not inner_edges:
        own = tuple(dataclasses.replace(client, edge_index=client.edge_index[:, :0]) for client in own)
    edges = torch.cat([pairs, pairs.flip(0), *(client.nodes[client.edge_index] for client in own)], dim=1)
    degrees = torch.bincount(edges[0], minlength=n)
    clients = tuple(_planted_client(client, pairs, degrees) for client in own)
    if view.observer.degrees is False:
        clients = tuple(dataclasses.replace(client, remote_degrees=None) for client in clients)
    planted = dataclasses.replace(
        view,
        own=clients,
        auxiliary=without_known_rows(view.auxiliary),
        public=dataclasses.replace(view.public, defense="none", defense_parameters={}, noise={}),
        topology=None if view.topology is None else edges[:, (edges[0] * n + edges[1]).argsort()],
        degrees=None if view.degrees is None else degrees,
    )
    return planted, edges


def _planted_client(client: ClientGraph, pairs: Tensor, degrees: Tensor) -> ClientGraph:
    """Return ``client`` with the planted cross-client edges in place of its own."""
    position = torch.searchsorted(client.nodes, pairs[0]).clamp(max=len(client.nodes) - 1)
    here = client.nodes[position] == pairs[0]
    remote, remote_position = torch.unique(pairs[1, here], return_inverse=True)
    return dataclasses.replace(
        client,
        degrees=degrees[client.nodes],
        remote_nodes=remote,
        remote_degrees=degrees[remote],
        boundary=torch.stack([position[here], remote_position]),
    )
