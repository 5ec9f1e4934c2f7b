"""FedGAT's first layer, evaluated from received messages without knowledge of the neighbours' features.

Cost: messages that are kept by a basis (:mod:`fglaudit.protocols.fedgat.received`) take one product of all bases with
the weights per evaluation, and small products for each node; of others every received number is read once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.chebyshev import Series
from fglaudit.nn.gat import EdgeLayer, LayerWeights
from fglaudit.protocols.fedgat.gat_training import FirstLayer
from fglaudit.protocols.fedgat.received import Batch

AT_ONCE = 2**22
"""Numbers per array where nothing is kept for gradients: larger ones come fresh from the system every time, and their
page faults cost more than the products."""


@dataclass(frozen=True)
class Bases:
    """The bases of all messages that have one, by client, so that each client's weights meet them in one product.

    Attributes:
        batches: the messages.
        rows: their basis vectors [R, F], ascending by client.
        lengths: how many rows each client has.
        index: for every batch where the basis of its messages lies in ``rows`` [P, C].
    """

    batches: Sequence[Batch]
    rows: Tensor
    lengths: Sequence[int]
    index: Sequence[Tensor]

    @staticmethod
    def of(batches: Sequence[Batch], clients: int) -> Bases | None:
        """Return the bases of ``batches`` of ``clients`` clients; None if no batch has one."""
        found = [batch for batch in batches if batch.basis is not None]
        if not found:
            return None
        vectors = torch.cat([batch.basis.flatten(0, 1) for batch in found if batch.basis is not None])
        client = torch.cat([batch.client.repeat_interleave(batch.m1.shape[1]) for batch in found])
        order = torch.argsort(client, stable=True)
        place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
        shapes = [batch.m1.shape[:2] for batch in found]
        index = [
            part.view(shape) for part, shape in zip(torch.split(place, [p * c for p, c in shapes]), shapes, strict=True)
        ]
        return Bases(found, vectors[order], torch.bincount(client, minlength=clients).tolist(), index)

    def project(self, maps: Sequence[Tensor]) -> Iterator[tuple[Batch, Sequence[Tensor]]]:
        """Yield every batch with ``maps``, each [K, F, n], of its clients in its coordinates, each [P, C, n]."""
        sizes = [part.shape[2] for part in maps]
        # Clients have different numbers of rows: padding them to one shape would cost more than the loop.
        products = [
            rows @ torch.cat([part[client] for part in maps], 1)
            for client, rows in enumerate(torch.split(self.rows, list(self.lengths)))
            if len(rows)
        ]
        joint = torch.cat(products)
        for batch, index in zip(self.batches, self.index, strict=True):
            yield batch, torch.split(joint[index], sizes, 2)


@dataclass(frozen=True)
class MaskedLayer:
    """The first layer evaluated from received messages; ``rows`` output rows for each of ``clients``."""

    batches: Sequence[Batch]
    rows: int
    clients: int
    series: Series

    @functools.cached_property
    def _bases(self) -> Bases | None:
        return Bases.of(self.batches, self.clients)

    @functools.cached_property
    def _whole(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.basis is None]

    def __call__(self, layer: LayerWeights) -> Tensor:
        """Return the layer's means [K, rows, heads, out]; 0 in padded rows."""
        own, neighbor = layer.score_vectors()
        _, heads, out = layer.own.shape
        means = own.new_zeros(self.clients * self.rows, heads, out)
        if self._bases is not None:
            places, parts = [], []
            for batch, (ours, theirs, weight) in self._bases.project(
                (own.transpose(1, 2), neighbor.transpose(1, 2), layer.weight)
            ):
                mean = batch.mean(ours.transpose(1, 2), theirs.transpose(1, 2), self.series)
                parts.append(torch.einsum("phc,pcho->pho", mean, weight.view(*weight.shape[:2], heads, out)))
                places.append(batch.place)
            means = means.index_copy(0, torch.cat(places), torch.cat(parts))
        means = means.view(self.clients, self.rows, heads, out)
        return means + self._from_features(own, neighbor, layer) if self._whole else means

    def _from_features(self, own: Tensor, neighbor: Tensor, layer: LayerWeights) -> Tensor:
        """Return the means [K, rows, heads, out] of the messages without a basis; 0 elsewhere."""
        heads, features = own.shape[1:]
        grid = own.new_zeros(self.clients * self.rows, heads, features)
        if torch.is_grad_enabled():
            parts = [b.mean(own[b.client], neighbor[b.client], self.series) for b in self._whole]
            grid = grid.index_copy(0, torch.cat([batch.place for batch in self._whole]), torch.cat(parts))
        else:
            for piece in self._pieces(heads * features):
                mean = piece.mean(own[piece.client], neighbor[piece.client], self.series)
                grid.index_copy_(0, piece.place, mean)
        weight = layer.per_head()
        return torch.einsum("krhf,kfho->krho", grid.view(self.clients, self.rows, heads, features), weight)

    def _pieces(self, numbers: int) -> Iterator[Batch]:
        """Yield the messages without a basis in pieces for which arrays of ``numbers`` per node are small."""
        for batch in self._whole:
            yield from batch.pieces(max(1, AT_ONCE // numbers))

    @torch.no_grad()
    def outside(self, layer: LayerWeights) -> Tensor:
        """Return the share of edge scores outside the series' domain."""
        own, neighbor = layer.score_vectors()
        found = [
            self.series.count_outside(piece.edge_scores(own[piece.client], neighbor[piece.client]))
            for piece in self._pieces(own.shape[1] * own.shape[2])
        ]
        if self._bases is not None:
            for batch, (ours, theirs) in self._bases.project((own.transpose(1, 2), neighbor.transpose(1, 2))):
                scores = batch.edge_scores(ours.transpose(1, 2), theirs.transpose(1, 2))
                found.append(self.series.count_outside(scores))
        return sum(found[1:], found[0]) / (own.shape[1] * sum(len(b.place) * b.width for b in self.batches))


def outside_domain(first: FirstLayer, domain: float) -> Callable[[LayerWeights], Tensor]:
    """Return a function from the first layer's weights to the share of edge scores outside the domain."""
    if isinstance(first, EdgeLayer):
        return lambda layer: first.outside(layer, domain)
    assert isinstance(first, MaskedLayer)
    return first.outside
