"""What self-tests plant with: messages held in memory, rows drawn from the prior, clients with other cross-client
edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.feature_prior import feature_prior
from fglaudit.graph import ClientGraph, FeatureKind
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.view import View

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
    """Draw rows for ``nodes`` from the prior [R, F]; discrete rows have at least three entries, or all if there are
    fewer."""
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


def planted_client(client: ClientGraph, pairs: Tensor, degrees: Tensor) -> ClientGraph:
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
