"""What a client keeps of masked messages, and what it reads from them for given weights.

Matrix variant, equations (7), (12), (14): ``D_i = sum_s b_1(s) M1_i(s) + b_2(s) M2_i(s)`` and, for a polynomial f,
``K1' f(D) K1`` and ``K1' f(D) K2``. These are ``sum_j f(x_ij)`` and ``sum_j f(x_ij) h_j'`` except for the power 0:
``K1' K1 = 2b`` instead of b, because the identity is not ``sum_j U_j``. Half of the term ``f(0)`` is therefore
subtracted; the paper's (12) does not do so.

Vector variant, appendix F: ``R_i = (b_1' M1 + b_2' M2) mask4``, then f elementwise and products with K1 and K3.

Where noise was added to the messages (this is public), receivers apply known bounds on the true values, which leave
exact messages unchanged: D_i is scaled down to the largest norm that scores in the series' domain can give it (R_i is
clipped to the domain), the denominator is at least b times the smallest attention score, and the mean of the
neighbours' rows has norm at most 1.

What a node's message says of feature space lies in a subspace of few dimensions, unless noise was added: M2 and K2 in
that of the b neighbours' rows, M1 too, since the node is one of them. The receiver finds an orthonormal basis of it
once (:func:`basis_of`), checks that nothing lies outside, and keeps the message in its coordinates, beside the basis.
In the vector variant K1 has another b dimensions of mask; f(R_i) has equal entries in every pair of coordinates, so
that the mask cancels, and the receiver averages it away beforehand (:func:`paired`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fglaudit.nn.chebyshev import Series
from fglaudit.payloads import MaskedMatrices, MaskedVectors
from fglaudit.protocols.fedgat.masking import LARGEST_R
from fglaudit.protocols.fedgat.message_basis import basis_of, paired, spanned

CHECKS = 4
"""Random combinations of each array's columns that must lie within the basis: an array with a column outside passes by
chance only, whose probability falls with the fourth power of how small it must look."""


@dataclass(frozen=True)
class Batch:
    """Received messages of P nodes with equal b, in coordinates of feature space: features, or those of a basis.

    Attributes:
        client: owner of each node [P].
        place: its row in the layer's output grid [P].
        width: 2b.
        m1, m2: [P, C, n] for C coordinates; n is 4 b^2 (matrix) or 2b (vector, times mask4).
        k1: matrix K1 [P, 2b], vector K3 [P, 2b]: what the denominator needs.
        k2: matrix K2, vector K1 [P, 2b, C]: what the numerator needs.
        basis: orthonormal rows [P, C, F]; None where the coordinates are the features themselves.
        noisy: whether noise was added.
    """

    client: Tensor
    place: Tensor
    width: int
    m1: Tensor
    m2: Tensor
    k1: Tensor
    k2: Tensor
    basis: Tensor | None = None
    noisy: bool = False

    @staticmethod
    def received(
        payload: MaskedMatrices | MaskedVectors, client: Tensor, rng: torch.Generator, *, noisy: bool = False
    ) -> Batch:
        """Store a payload's messages to ``client`` [P], not yet placed; those without noise by a basis."""
        place = torch.full_like(client, -1)
        if not isinstance(payload, MaskedVectors):
            m1, m2 = payload.m1.flatten(2), payload.m2.flatten(2)
            batch = Batch(client, place, payload.k1.shape[1], m1, m2, payload.k1, payload.k2, noisy=noisy)
            return batch if noisy else batch.by_basis(rng, batch.width // 2)
        # Scores are read through mask4 alone.
        given = (payload.m1, payload.m2)
        m1, m2 = (m.transpose(1, 2) @ payload.k2 for m in given)
        batch = Batch(client, place, payload.k3.shape[1], m1, m2, payload.k3, payload.k1, noisy=noisy)
        if noisy:
            return batch
        sizes = [m.flatten(1).norm(dim=1) * payload.k2.flatten(1).norm(dim=1) for m in given]
        if (pairs := paired(payload.k2)) is None:
            return batch.by_basis(rng, batch.width, sizes)
        by_basis = replace(batch, k2=pairs @ batch.k2).by_basis(rng, batch.width // 2, sizes)
        return batch if by_basis.basis is None else by_basis

    @property
    def vectors(self) -> bool:
        """Whether these are messages of the vector variant."""
        return self.m1.shape[2] == self.width

    def by_basis(self, rng: torch.Generator, rank: int, sizes: Sequence[Tensor | None] = (None, None)) -> Batch:
        """Return these messages in coordinates of ``rank`` leading directions of the rows of K2 (vector: K1), or
        themselves where that would lose or gain nothing; ``sizes`` of M1 and M2 as for :func:`spanned`."""
        if self.width >= self.k2.shape[2]:
            return self
        basis = basis_of(self.k2, rank)
        probe = torch.randn(self.m1.shape[2], CHECKS, generator=rng).to(self.m1)
        parts = (self.k2.transpose(1, 2), self.m1 @ probe, self.m2 @ probe)
        inside = [spanned(basis, part, size) for part, size in zip(parts, (None, *sizes), strict=True)]
        if not bool(torch.stack(inside).all()):
            return self
        rows = basis.transpose(1, 2).contiguous()
        return replace(self, m1=rows @ self.m1, m2=rows @ self.m2, k2=self.k2 @ basis, basis=rows)

    @staticmethod
    def join(batches: Sequence[Batch]) -> list[Batch]:
        """Return ``batches`` of equal b as one batch if all or none have a basis, so that they are evaluated
        together."""
        bases = [b.basis for b in batches if b.basis is not None]
        if len(batches) == 1 or len(bases) not in (0, len(batches)):
            return list(batches)
        names = ("client", "place", "m1", "m2", "k1", "k2")
        whole: dict[str, Any] = {name: torch.cat([getattr(b, name) for b in batches]) for name in names}
        return [replace(batches[0], **whole, basis=torch.cat(bases) if bases else None)]

    def select(self, part: slice | Tensor) -> Batch:
        """Return some of the messages."""
        names = ("client", "place", "m1", "m2", "k1", "k2")
        basis = None if self.basis is None else self.basis[part]
        return replace(self, **{name: getattr(self, name)[part] for name in names}, basis=basis)

    def at(self, place: Tensor) -> Batch | None:
        """Return the nodes whose new ``place`` [P] is not negative; None if there are none."""
        keep = place >= 0
        if bool(keep.all()):
            return replace(self, place=place)
        return replace(self, place=place).select(keep) if bool(keep.any()) else None

    def pieces(self, size: int) -> Iterator[Batch]:
        """Yield the batch in pieces of at most ``size`` nodes, without copying a message."""
        for low in range(0, len(self.place), size):
            yield self.select(slice(low, low + size))

    def scores(self, own: Tensor, neighbor: Tensor) -> Tensor:
        """Return D_i [P, heads, 2b, 2b] or R_i [P, heads, 2b].

        Args:
            own, neighbor: ``b_1`` and ``b_2`` of every node's client, in the node's coordinates [P, heads, C].
        """
        scores = own @ self.m1 + neighbor @ self.m2
        return scores if self.vectors else scores.view(*scores.shape[:2], self.width, self.width)

    def moments(self, own: Tensor, neighbor: Tensor, series: Series) -> tuple[Tensor, Tensor]:
        """Return ``sum_j f(x_ij) h_j`` [P, heads, C] and ``sum_j f(x_ij)`` [P, heads], both up to the same factor;
        arguments as for :meth:`scores`."""
        scores = self.scores(own, neighbor)
        if self.noisy:
            scores = self._within(scores, series.domain)
        if self.vectors:
            row = series(scores)
        else:
            start = self.k1.unsqueeze(1).expand(-1, scores.shape[1], -1)
            row = series.row_times(start, scores) - series.at_zero / 2 * start
        return row @ self.k2, (row @ self.k1.unsqueeze(2)).squeeze(2)

    def _within(self, scores: Tensor, domain: float) -> Tensor:
        """Return noisy D_i or R_i, clipped to the range that scores in the domain can give."""
        if self.vectors:
            return scores.clamp(-domain, domain)
        largest = domain * (LARGEST_R + 1 / LARGEST_R) / 2  # ||U_j||_2 = (r + 1/r) / 2
        norm = torch.linalg.matrix_norm(scores.detach(), 2)
        shrunk: Tensor = scores * (largest / norm.clamp(min=largest))[..., None, None]
        return shrunk

    def mean(self, own: Tensor, neighbor: Tensor, series: Series) -> Tensor:
        """Return the attention-weighted mean of the neighbours' features [P, heads, C]; arguments as for
        :meth:`scores`."""
        numerator, denominator = self.moments(own, neighbor, series)
        if not self.noisy:
            return numerator / denominator.unsqueeze(2)
        weight = 2 if self.vectors else 1  # |u_j|^2
        least = weight * self.width / 2 * series.least
        means = numerator / denominator.clamp(min=least).unsqueeze(2)
        length: Tensor = means.norm(dim=2, keepdim=True)
        return means / length.clamp(min=1)

    def edge_scores(self, own: Tensor, neighbor: Tensor) -> Tensor:
        """Return the ``x_ij`` of all edges, flat, each twice: non-zero eigenvalues of D_i, or entries of R_i;
        arguments as for :meth:`scores`."""
        scores = self.scores(own, neighbor)
        if self.vectors:
            return scores.flatten()
        values: Tensor = torch.linalg.eigvals(scores).abs()
        return values.topk(self.width // 2, dim=-1).values.flatten().repeat(2)
