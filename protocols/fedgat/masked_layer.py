"""FedGAT's first layer, evaluated from received messages without knowledge of the neighbours' features.

Matrix variant, equations (7), (12), (14): ``D_i = sum_s b_1(s) M1_i(s) + b_2(s) M2_i(s)`` and, for a polynomial f,
``K1' f(D) K1`` and ``K1' f(D) K2``. These are ``sum_j f(x_ij)`` and ``sum_j f(x_ij) h_j'`` except for the power 0:
``K1' K1 = 2b`` instead of b, because the identity is not ``sum_j U_j``. Half of the term ``f(0)`` is therefore
subtracted; the paper's (12) does not do so.

Vector variant, appendix F: ``R_i = (b_1' M1 + b_2' M2) mask4``, then f elementwise and products with K1 and K3.

Where noise was added to the messages (this is public), receivers apply known bounds on the true values, which leave
exact messages unchanged: D_i is scaled down to the largest norm that scores in the series' domain can give it (R_i is
clipped to the domain), the denominator is at least b times the smallest attention score, and the mean of the
neighbours' rows has norm at most 1.

Cost: every received number is read once per evaluation. Matrices are stored in factored form where that is exact
(:func:`factored`): the received [F, 4b^2] array has rank b unless noise was added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.nn.chebyshev import NEGATIVE_SLOPE, Series
from fglaudit.nn.gat import LayerWeights
from fglaudit.payloads import MaskedMatrices, MaskedVectors
from fglaudit.protocols.fedgat.masking import LARGEST_R

Factors = tuple[Tensor, ...]
"""Arrays [P, F, r] and [P, r, n] that stand for their product, or the one array [P, F, n]."""

AT_ONCE = 2**22
"""Numbers per array where nothing is kept for gradients: larger ones come fresh from the system every time, and their
page faults cost more than the products."""
RESIDUAL = 100
"""Largest relative residual of a factored form, in units of the type's precision."""


def factored(array: Tensor, rank: int, rng: torch.Generator) -> Factors:
    """Return factors of ``array`` [P, F, n] if its rank is at most ``rank`` up to rounding, else the array itself.

    The factors span the range of random combinations of the array's columns; the residual is computed, not assumed.
    """
    count, features, columns = array.shape
    if rank >= min(features, columns):
        return (array,)
    probe = torch.randn(columns, rank, generator=rng).to(array)
    left = torch.linalg.qr(array @ probe).Q
    right = left.transpose(1, 2) @ array
    error = torch.stack([(array[p] - left[p] @ right[p]).norm() for p in range(count)])
    bound = RESIDUAL * torch.finfo(array.dtype).eps * array.flatten(1).norm(dim=1)
    return (left, right) if bool((error <= bound).all()) else (array,)


def combine(vectors: Tensor, factors: Factors) -> Tensor:
    """Return ``vectors`` [P, heads, F] times the array [P, F, n]."""
    for factor in factors:
        vectors = vectors @ factor
    return vectors


@dataclass(frozen=True)
class Batch:
    """Received messages of P nodes with equal b.

    Attributes:
        client: owner of each node [P].
        place: its row in the layer's output grid [P].
        width: 2b.
        m1, m2: [P, F, n] in factored form; n is 4 b^2 (matrix) or 2b (vector).
        k1: matrix K1 [P, 2b], vector K3 [P, 2b]: what the denominator needs.
        k2: matrix K2, vector K1 [P, 2b, F]: what the numerator needs.
        mask: mask4 [P, 2b, 2b] of the vector variant, else None.
        noisy: whether noise was added.
    """

    client: Tensor
    place: Tensor
    width: int
    m1: Factors
    m2: Factors
    k1: Tensor
    k2: Tensor
    mask: Tensor | None
    noisy: bool = False

    @staticmethod
    def received(
        payload: MaskedMatrices | MaskedVectors, client: Tensor, rng: torch.Generator, *, noisy: bool = False
    ) -> Batch:
        """Store a payload's messages to ``client`` [P], not yet placed; matrices without noise are factored."""
        width, place = payload.k1.shape[1], torch.full_like(client, -1)
        if isinstance(payload, MaskedVectors):
            vectors = ((payload.m1.transpose(1, 2),), (payload.m2.transpose(1, 2),))
            return Batch(client, place, width, *vectors, payload.k3, payload.k1, payload.k2, noisy)
        flat: tuple[Factors, Factors] = ((payload.m1.flatten(2),), (payload.m2.flatten(2),))
        if not noisy:
            flat = (factored(flat[0][0], 1, rng), factored(flat[1][0], width // 2, rng))
        return Batch(client, place, width, *flat, payload.k1, payload.k2, None, noisy)

    @staticmethod
    def join(batches: Sequence[Batch]) -> list[Batch]:
        """Return ``batches`` of equal b as one batch if all are factored alike, so that they are evaluated together."""
        one = batches[0]
        if any(len(b.m1) != len(one.m1) or len(b.m2) != len(one.m2) for b in batches) or len(batches) == 1:
            return list(batches)

        def rows(parts: Sequence[Tensor]) -> Tensor:
            return torch.cat(list(parts))

        m1, m2 = (
            tuple(rows(parts) for parts in zip(*factors, strict=True))
            for factors in ([b.m1 for b in batches], [b.m2 for b in batches])
        )
        masks = [b.mask for b in batches if b.mask is not None]
        client, place, k1, k2 = (rows([getattr(b, name) for b in batches]) for name in ("client", "place", "k1", "k2"))
        return [
            replace(one, client=client, place=place, m1=m1, m2=m2, k1=k1, k2=k2, mask=rows(masks) if masks else None)
        ]

    def at(self, place: Tensor) -> Batch | None:
        """Return the nodes whose new ``place`` [P] is not negative; None if there are none."""
        keep = place >= 0
        if bool(keep.all()):
            return replace(self, place=place)
        if not bool(keep.any()):
            return None
        m1, m2 = (tuple(factor[keep] for factor in factors) for factors in (self.m1, self.m2))
        mask = None if self.mask is None else self.mask[keep]
        rest = {name: getattr(self, name)[keep] for name in ("client", "k1", "k2")}
        return replace(self, place=place[keep], m1=m1, m2=m2, mask=mask, **rest)

    def pieces(self, size: int) -> Iterator[Batch]:
        """Yield the batch in pieces of at most ``size`` nodes, without copying a message."""
        for low in range(0, len(self.place), size):
            part = slice(low, low + size)
            m1, m2 = (tuple(factor[part] for factor in factors) for factors in (self.m1, self.m2))
            mask = None if self.mask is None else self.mask[part]
            rest = {name: getattr(self, name)[part] for name in ("client", "place", "k1", "k2")}
            yield replace(self, m1=m1, m2=m2, mask=mask, **rest)

    def scores(self, own: Tensor, neighbor: Tensor) -> Tensor:
        """Return D_i [P, heads, 2b, 2b] or R_i [P, heads, 2b] for ``b_1`` and ``b_2`` [K, heads, F]."""
        combined = combine(own[self.client], self.m1) + combine(neighbor[self.client], self.m2)
        if self.mask is not None:
            return combined @ self.mask
        return combined.view(*combined.shape[:2], self.width, self.width)

    def moments(self, own: Tensor, neighbor: Tensor, series: Series) -> tuple[Tensor, Tensor]:
        """Return ``sum_j f(x_ij) h_j`` [P, heads, F] and ``sum_j f(x_ij)`` [P, heads], both up to the same factor."""
        scores = self.scores(own, neighbor)
        if self.noisy:
            scores = self._within(scores, series.domain)
        if self.mask is None:
            start = self.k1.unsqueeze(1).expand(-1, scores.shape[1], -1)
            row = series.row_times(start, scores) - series.at_zero / 2 * start
        else:
            row = series(scores)
        return row @ self.k2, (row @ self.k1.unsqueeze(2)).squeeze(2)

    def _within(self, scores: Tensor, domain: float) -> Tensor:
        """Return noisy D_i or R_i, clipped to the range that scores in the domain can give."""
        if self.mask is not None:
            return scores.clamp(-domain, domain)
        largest = domain * (LARGEST_R + 1 / LARGEST_R) / 2  # ||U_j||_2 = (r + 1/r) / 2
        norm = torch.linalg.matrix_norm(scores.detach(), 2)
        shrunk: Tensor = scores * (largest / norm.clamp(min=largest))[..., None, None]
        return shrunk

    def mean(self, own: Tensor, neighbor: Tensor, series: Series) -> Tensor:
        """Return the attention-weighted mean of the neighbours' features [P, heads, F]."""
        numerator, denominator = self.moments(own, neighbor, series)
        if not self.noisy:
            return numerator / denominator.unsqueeze(2)
        weight = 1 if self.mask is None else 2  # |u_j|^2
        least = weight * self.width / 2 * math.exp(-NEGATIVE_SLOPE * series.domain)
        means = numerator / denominator.clamp(min=least).unsqueeze(2)
        length: Tensor = means.norm(dim=2, keepdim=True)
        return means / length.clamp(min=1)

    def edge_scores(self, own: Tensor, neighbor: Tensor) -> Tensor:
        """Return the ``x_ij`` of all edges, flat, each twice: non-zero eigenvalues of D_i, or entries of R_i."""
        scores = self.scores(own, neighbor)
        if self.mask is not None:
            return scores.flatten()
        values: Tensor = torch.linalg.eigvals(scores).abs()
        return values.topk(self.width // 2, dim=-1).values.flatten().repeat(2)


@dataclass(frozen=True)
class MaskedLayer:
    """The first layer evaluated from received messages; ``rows`` output rows per client."""

    batches: Sequence[Batch]
    rows: int
    series: Series

    def __call__(self, layer: LayerWeights) -> Tensor:
        """Return the layer's means [K, rows, heads, out]; 0 in padded rows."""
        own, neighbor = layer.score_vectors()
        clients, heads, features = own.shape
        grid = own.new_zeros(clients * self.rows, heads, features)
        if torch.is_grad_enabled():
            parts = [batch.mean(own, neighbor, self.series) for batch in self.batches]
            grid = grid.index_copy(0, torch.cat([batch.place for batch in self.batches]), torch.cat(parts))
        else:
            for piece in self._pieces(heads * features):
                grid.index_copy_(0, piece.place, piece.mean(own, neighbor, self.series))
        weight = layer.per_head()
        return torch.einsum("krhf,kfho->krho", grid.view(clients, self.rows, heads, features), weight)

    def _pieces(self, numbers: int) -> Iterator[Batch]:
        """Yield the messages in pieces for which arrays of ``numbers`` per node are small."""
        for batch in self.batches:
            yield from batch.pieces(max(1, AT_ONCE // numbers))

    @torch.no_grad()
    def outside(self, layer: LayerWeights) -> Tensor:
        """Return the share of edge scores outside the series' domain."""
        own, neighbor = layer.score_vectors()
        pieces = self._pieces(own.shape[1] * own.shape[2])
        found = [self.series.count_outside(piece.edge_scores(own, neighbor)) for piece in pieces]
        return sum(found[1:], found[0]) / (own.shape[1] * sum(len(b.place) * b.width for b in self.batches))
