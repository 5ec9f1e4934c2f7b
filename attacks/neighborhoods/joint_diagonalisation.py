"""Joint diagonalisation of FedGAT's matrices: ``M2_i(s)`` for all features s share their singular vectors.

FedGAT (equations 9 and 13) sends a client ``M2_i(s) = sum_j h_j(s) U_j`` and argues in its privacy analysis that only
sums over j can be read off. But ``2 U_j = v_j w_j'`` with ``v_j = u1_j + u2_j / r`` and ``w_j = u1_j + r u2_j``, so
every M2_i(s) is diagonal in one and the same pair of orthogonal bases. A single singular value decomposition, of a
combination ``sum_s c_s M2_i(s)``, gives them all; with v_j and w_j scaled to length 1, ``h_j(s) = (v_j' M2_i(s) w_j)
(v_j' w_j)`` is the eigenvalue of M2_i(s) that belongs to j. Equal rows have equal singular values; any basis of their
common space gives the same row, as often as it occurs. Opposite rows have equal ones too, and eigenvalues that differ.
Where there are fewer than b rows, the others come out as zeros.

The combination is taken along the features of the neighbourhood (the row space of K2). The share of M2 outside the
bases shows whether they are right; where it is too large (close singular values, or noise on the matrices), several
combinations are tried and the one with the best separated singular values is used. Its bases are improved by
alternating least squares over all M2_i(s), and K2, whose rows in the basis u1_j are the h_j once more, is averaged in.
Under noise M1 helps as well: it shows which v_j goes with which w_j.

``python -m bench fedgat-attacks`` measures it on Cora.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from fglaudit.payloads import Embeddings, MaskedMatrices, ModelUpdate, Payload, RawFeatures
from fglaudit.view import View

_UNEXPLAINED = 1e-8
"""Share of the squared entries of M2 that float32 rounding may leave outside the common bases."""
_NUMBERS_AT_ONCE = 1 << 24
_CLOSE = 1e-8
_ZERO = 1e-9
"""Share of the largest value below which one counts as that of a row of zeros."""


@dataclass(frozen=True)
class JointDiagonalisation(Attack):
    """Recover the rows of every neighbourhood from its matrices.

    Attributes:
        combinations: random combinations of which the best separated one is used.
        sweeps: most rounds of alternating least squares where the first bases are not exact.
    """

    name: ClassVar[str] = "joint-diagonalisation"
    consumes: ClassVar[tuple[type[Payload], ...]] = (MaskedMatrices,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, Embeddings, ModelUpdate)
    first_rounds: ClassVar[int | None] = FIRST_ROUNDS
    metric: ClassVar[str] = "exact_rate"
    least: ClassVar[Mapping[str, float]] = {"combinations": 1, "sweeps": 1}

    combinations: int = 4
    sweeps: int = 8

    def models(self, fact: Fact) -> bool:
        return allowed_in_assignment(fact) or known_noise(fact, MaskedMatrices, distributions=GAUSSIAN)

    def unsupported(self, view: View) -> str | None:
        return missing_messages(view, MaskedMatrices)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        return assign_rows(view, self.recover(view, rng, device), rng)

    def recover(self, view: View, rng: torch.Generator, device: torch.device) -> NeighborhoodRows:
        """Return the rows of every neighbourhood, not yet assigned to nodes."""
        std = noise_std(view, MaskedMatrices)
        parts = []
        for _, payload in view.sent(MaskedMatrices):
            for part in _chunks(payload.m2):
                m2, k2 = (field[part].to(device) for field in (payload.m2, payload.k2))
                # The trace of sum_j U_j is b.
                center = payload.m1[part].diagonal(dim1=-2, dim2=-1).to(device).double().mean(-1) * 2
                partner = _partner(payload.m1[part].to(device), center) if std > 0 else None
                parts.append(self._recover(payload.node[part], m2, k2.double(), center, partner, std, rng))
        return NeighborhoodRows.join(parts, view.public.num_features)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_masked_pairs(view, rng)

    def _recover(
        self,
        nodes: Tensor,
        m2: Tensor,
        k2: Tensor,
        center: Tensor,
        partner: Tensor | None,
        std: float,
        rng: torch.Generator,
    ) -> NeighborhoodRows:
        """Return the rows of P neighbourhoods.

        Args:
            nodes: [P].
            m2: [P, F, 2b, 2b].
            k2: [P, 2b, F].
            center: the nodes' own rows [P, F].
            partner: result of :func:`_partner` [P, 2b, 2b], under noise.
            std: standard deviation of the noise.
        """
        count, _, width, _ = m2.shape
        flat = m2.flatten(2)
        draw = torch.randn(count, self.combinations, width // 2, generator=rng, dtype=torch.double).to(m2.device)
        weights = draw @ _row_space(k2, width // 2)
        combined = _combine(flat, weights).view(count, -1, width, width)
        left, right = _best_bases(combined) if std > 0 else _signed_bases(combined[:, :1])
        rows, unexplained = _read(flat, left, right)
        again = (unexplained > _UNEXPLAINED).nonzero().squeeze(1)
        if std == 0 and len(again):
            left[again], right[again] = _signed_bases(combined[again])
            rows[again], unexplained[again] = _read(flat[again], left[again], right[again])
        for _ in range(self.sweeps):
            unsolved = (unexplained > (_UNEXPLAINED if std == 0 else -1.0)).nonzero().squeeze(1)
            if len(unsolved) == 0:
                break
            left[unsolved], right[unsolved] = _improve(
                flat[unsolved],
                rows[unsolved],
                left[unsolved],
                right[unsolved],
                None if partner is None else partner[unsolved],
            )
            rows[unsolved], unexplained[unsolved] = _read(flat[unsolved], left[unsolved], right[unsolved])
        sure = (unexplained <= _UNEXPLAINED)[:, None].expand(rows.shape[:2])
        overlap = (left * right).sum(1).abs()
        spread = std * overlap
        if std > 0:
            first = _polar(k2 @ rows.mT)
            gain = overlap.clamp(min=0.1).square().reciprocal()[..., None]
            rows = (gain * rows + 2**0.5 * (first.mT @ k2)) / (gain + 2)
            spread = std * (gain[..., 0] + 2).rsqrt()
            # No row is longer than 1. Where noise is, bases follow the noise too, and what is beyond 1 is error.
            excess = ((rows.square().sum(2) - 1).clamp(min=0) / rows.shape[2]).sqrt()
            spread = torch.where(spread.square() * rows.shape[2] > 1, torch.maximum(spread, excess), spread)
            sure = torch.zeros_like(sure)
        return NeighborhoodRows.of(nodes, rows, sure, spread, center)


def _chunks(m2: Tensor) -> Iterator[slice]:
    """Cut P neighbourhoods into slices that fit the working memory."""
    step = max(1, _NUMBERS_AT_ONCE // max(1, m2[:1].numel()))
    return (slice(low, low + step) for low in range(0, len(m2), step))


def _feature_blocks(flat: Tensor) -> Iterator[slice]:
    step = max(1, _NUMBERS_AT_ONCE // max(1, flat[:, 0].numel()))
    return (slice(low, low + step) for low in range(0, flat.shape[1], step))


def _combine(flat: Tensor, weights: Tensor) -> Tensor:
    """Return ``sum_s weights[p, q, s] flat[p, s]`` [P, q, D] in float64."""
    total = torch.zeros(*weights.shape[:2], flat.shape[2], dtype=torch.double, device=flat.device)
    for block in _feature_blocks(flat):
        total += weights[:, :, block] @ flat[:, block].double()
    return total


def _row_space(k2: Tensor, rank: int) -> Tensor:
    """Return orthonormal combinations [P, rank, F] of the features along which ``k2`` [P, 2b, F] varies.

    They are zero past the rank of ``k2``.
    """
    value, vector = torch.linalg.eigh(k2 @ k2.mT)
    value, vector = value[:, -rank:], vector[:, :, -rank:]
    real = value > 1e-10 * value[:, -1:].clamp(min=1e-30)
    length = torch.where(real, value.clamp(min=1e-300).rsqrt(), 0.0)
    directions: Tensor = (vector.mT @ k2) * length[..., None]
    return directions


def _best_bases(combined: Tensor) -> tuple[Tensor, Tensor]:
    """Return the b leading left and right singular vectors [P, 2b, b] of the best separated combination.

    Args:
        combined: the combinations [P, q, 2b, 2b].
    """
    left, right, _ = _separated(combined)
    return left, right


def _signed_bases(combined: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same where nothing is noise, rows with opposite values in the combination told apart as well: they
    have equal singular values, and eigenvalues ``(v' M v) = h (v' w)`` of either sign."""
    left, right, chosen = _separated(combined)
    inner = left.mT @ chosen @ left
    turn = torch.linalg.eigh((inner + inner.mT) / 2).eigenvectors
    left, right = left @ turn, right @ turn
    image = chosen.mT @ left  # h w, up to the sign
    length = image.norm(dim=1, keepdim=True)
    return left, torch.where(length > _ZERO * length.amax(2, keepdim=True), image / length.clamp(min=1e-300), right)


def _separated(combined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the bases of :func:`_best_bases`, and the combination that they are of [P, 2b, 2b]."""
    left, value, right = torch.linalg.svd(combined)
    half = combined.shape[-1] // 2
    gap = -value[..., : half + 1].diff(dim=-1) / value[..., :1].clamp(min=1e-300)
    best = (gap + _CLOSE).log().sum(-1).argmax(1)
    each = torch.arange(len(combined), device=combined.device)
    return left[each, best][:, :, :half], right[each, best][:, :half].mT, combined[each, best]


def _read(flat: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows in given bases [P, b, F], and the share of the squared entries outside the bases [P]."""
    pairs = (left.mT.unsqueeze(3) * right.mT.unsqueeze(2)).flatten(2)
    inside, total = [], torch.zeros(len(flat), dtype=torch.double, device=flat.device)
    for block in _feature_blocks(flat):
        values = flat[:, block].double()
        inside.append(pairs @ values.mT)
        total += values.square().sum((1, 2))
    diagonal = torch.cat(inside, 2)
    unexplained = 1 - diagonal.square().sum((1, 2)) / total.clamp(min=1e-300)
    return diagonal * (left * right).sum(1)[..., None], torch.where(total > 0, unexplained, 0.0)


def _improve(flat: Tensor, rows: Tensor, left: Tensor, right: Tensor, partner: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the orthonormal bases [P, 2b, b] that, each given the other and ``rows``, fit all matrices best.

    Each is the solution of a Procrustes problem.

    Args:
        flat: the matrices [P, F, 4 b^2].
        rows: [P, b, F].
        left, right: the bases so far [P, 2b, b].
        partner: result of :func:`_partner` [P, 2b, 2b], under noise.
    """
    width = left.shape[1]
    weighted = _combine(flat, rows).view(len(flat), -1, width, width)  # row j: sum_s h_j(s) M2(s)
    new_left = torch.einsum("pjab,pbj->paj", weighted, right)
    new_right = torch.einsum("pjab,paj->pbj", weighted, left)
    if partner is not None:
        new_left, new_right = new_left + partner @ new_right, new_right + partner.mT @ new_left
    return _polar(new_left), _polar(new_right)


def _partner(m1: Tensor, center: Tensor) -> Tensor:
    """Return ``sum_j v_j w_j'`` [P, 2b, 2b] of the unit vectors, which maps every w_j to its v_j.

    ``sum_s h_i(s) M1_i(s)`` is ``sum_j U_j`` times ``||h_i||^2``, and r, so the length of U_j, is the same for all j:
    the nearest partial isometry of rank b is the sum.

    Args:
        m1: [P, F, 2b, 2b].
        center: the nodes' own rows [P, F].
    """
    width = m1.shape[-1]
    total = _combine(m1.flatten(2), center[:, None]).view(len(m1), width, width)
    left, _, right = torch.linalg.svd(total)
    isometry: Tensor = left[..., : width // 2] @ right[:, : width // 2]
    return isometry


def _polar(matrix: Tensor) -> Tensor:
    """Return the nearest matrix with orthonormal columns to ``matrix`` [P, n, b]."""
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    nearest: Tensor = left @ right
    return nearest
