"""Columns of FedGAT's vector variant: after unmasking, the columns of M2 are the rows h_j.

They are ``M2_i mask4 = sum_j h_j u_j'`` with binary u_j of disjoint support. Appendix F hides ``sum_j h_j u_j'`` under
mask2 and publishes mask4 with ``mask2 mask4 = 0`` and ``u_j' mask4 = u_j'``, which the client needs. One product
removes the mask; each row is then the two columns where its u_j is one. Which two belong together shows in mask4
itself: ``mask4 = V U'`` has equal columns there. With the u_j known, ``u_j' K1 = 2 h_j`` gives the rows once more.
Under noise only this is used: noise on mask4 would be multiplied by the large entries of mask2, while mask3 cancels
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import known_noise
from fglaudit.adversary.public_rules import noise_std
from fglaudit.attacks.neighborhoods.embedding_assignment import FIRST_ROUNDS
from fglaudit.attacks.neighborhoods.modelled_facts import GAUSSIAN, allowed_in_assignment
from fglaudit.attacks.neighborhoods.planting import plant_masked_pairs
from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows, missing_messages
from fglaudit.attacks.neighborhoods.row_assignment import assign_rows
from fglaudit.facts import Fact
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import Embeddings, MaskedVectors, ModelUpdate, Payload, RawFeatures
from fglaudit.view import View

_ROUNDING = 2.0**-22
_SAME = 1e-4
"""Largest difference of the two columns of one u_j, relative to the largest entry."""


@dataclass(frozen=True)
class VectorColumns(Attack):
    """Unmask the columns of M2."""

    name: ClassVar[str] = "vector-columns"
    consumes: ClassVar[tuple[type[Payload], ...]] = (MaskedVectors,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, Embeddings, ModelUpdate)
    first_rounds: ClassVar[int | None] = FIRST_ROUNDS
    metric: ClassVar[str] = "exact_rate"

    def models(self, fact: Fact) -> bool:
        return allowed_in_assignment(fact) or known_noise(fact, MaskedVectors, distributions=GAUSSIAN)

    def unsupported(self, view: View) -> str | None:
        return missing_messages(view, MaskedVectors)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        return assign_rows(view, self.recover(view, device), rng)

    def recover(self, view: View, device: torch.device) -> NeighborhoodRows:
        """Return the rows of every neighbourhood, not yet assigned to nodes."""
        std = noise_std(view, MaskedVectors)
        parts = []
        for _, payload in view.sent(MaskedVectors):
            parts.append(_recover(payload, std, device))
        return NeighborhoodRows.join(parts, view.public.num_features)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_masked_pairs(view, rng, MaskedVectors)


def _recover(payload: MaskedVectors, std: float, device: torch.device) -> NeighborhoodRows:
    """Return the rows of every neighbourhood of a batch."""
    mask, m1, m2, k1 = (field.to(device).double() for field in (payload.k2, payload.m1, payload.m2, payload.k1))
    columns = k1 if std > 0 else mask.mT @ m2
    largest, rounding = columns.abs().amax((1, 2)), _ROUNDING * (mask.abs().mT @ m2.abs()).amax((1, 2))
    if std == 0:
        columns = torch.where((largest > rounding)[:, None, None], columns, 0.0)
    places = _places(_nearest(mask.mT))
    first, second = (columns.gather(1, place[..., None].expand(-1, -1, columns.shape[2])) for place in places)
    same = (first - second).abs().amax(2) <= _SAME * largest[:, None]
    same &= ((largest <= rounding) | (largest * _SAME > rounding))[:, None]
    spread = torch.full(first.shape[:2], std * 0.5**0.5, dtype=torch.double)
    return NeighborhoodRows.of(payload.node, (first + second) / 2, same & (std == 0), spread, (mask.mT @ m1).mean(1))


def _nearest(rows: Tensor) -> Tensor:
    """Return for each of ``rows`` [P, n, D] the index of the nearest other one [P, n]."""
    eye = torch.eye(rows.shape[1], dtype=torch.bool, device=rows.device)
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").masked_fill(eye, torch.inf).argmin(2)


def _places(other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two places of every u_j, each [P, b], from each place's partner ``other`` [P, 2b].

    Places whose partner has another partner stand alone.
    """
    here = torch.arange(other.shape[1], device=other.device).expand_as(other)
    mutual = other.gather(1, other) == here
    rank = torch.where(mutual & (here < other), 0, torch.where(mutual, 2, 1))
    first = rank.argsort(dim=1, stable=True)[:, : other.shape[1] // 2]
    return first, torch.where(mutual, other, here).gather(1, first)
