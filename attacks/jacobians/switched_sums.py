"""Separation of sums whose terms are switched on and off by hyperplanes: the core of the mask-flip attacks.

A mixture is ``G[q] = sum over rows r of 1[u_q' v_r > 0] v_r``, seen for many known directions u_q (the first-layer
weights of hidden unit h in round t). The difference between two directions contains only the rows between them:

    D = G[q'] - G[q] = sum over r of s_r v_r,   s_r = 1[u_q' . v_r > 0] - 1[u_q . v_r > 0]  in {-1, 0, 1},

a cell. A cell with one row shows it, up to sign: v and -v give the same cells and differ only by a constant in G. Which
cells those are is not known at first, and a difference that occurs repeatedly may still be a sum of rows that flip
together (units that learn the same direction flip the same rows). The criterion is that **s_r follows from v_r and the
public directions**:

1. the distinct differences are candidates;
2. a candidate whose flips fall on a cell that did not change is refuted;
3. the others must explain all cells together: least squares for ``D = sum of z_r s_r v_r`` with 0 <= z_r <= 1, where
   true rows get 1 and sums of them 0, kept only where their flips become exactly explained;
4. what the kept rows explain is subtracted, which leaves new cells with a single row; repeat.

All mixtures of a batch share the directions and are solved together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.graph import components
from fglaudit.rng import derive

_NEIGHBOURS = 8
"""Each difference is compared with this many next ones along a line; equal ones are adjacent up to rounding."""
_MOST_CANDIDATES = 1024
_PREDICTIONS_AT_ONCE = 1 << 23
_LEAST_SQUARES_STEPS = 1000
_SWEEPS = 8
"""Most rounds of finding candidates and subtracting what they explain."""
_REFUTABLE = 0.97
_EXPLAINED = 0.2
"""Share of a kept row's flips that must be exactly explained."""


@dataclass(frozen=True)
class Mixtures:
    """B mixtures seen for Q directions, and the M pairs of directions to compare.

    Attributes:
        sums: G [B, Q, F].
        error: bound on the norm of the error of each sum [B, Q].
        directions: u [F, Q].
        start, stop: pairs of directions [M].
    """

    sums: Tensor
    error: Tensor
    directions: Tensor
    start: Tensor
    stop: Tensor

    def differences(self) -> tuple[Tensor, Tensor]:
        """Return D [B, M, F] and the bound on the norm of its error [B, M]."""
        error = torch.hypot(self.error[:, self.stop], self.error[:, self.start])
        return self.sums[:, self.stop] - self.sums[:, self.start], error

    def changed(self) -> Tensor:
        """Return in which cells more than an error changed [B, M]."""
        differences, error = self.differences()
        changed: Tensor = differences.norm(dim=2) > error
        return changed

    def active(self, rows: Tensor) -> Tensor:
        """Return 1[u_q' v_r > 0] [R, Q] for ``rows`` [R, F]."""
        return rows @ self.directions > 0


@dataclass(frozen=True)
class SeparatedRows:
    """Rows found in the mixtures, each up to its sign, sorted by mixture.

    Attributes:
        mixture: [R].
        rows: v [R, F].
        error: bound on the norm of a row's error [R].
        flips: number of cells the row enters [R].
        explained: how many of these cells the found rows explain exactly [R].
        share: share of the changed cells of the row's mixture that are explained [R].
    """

    mixture: Tensor
    rows: Tensor
    error: Tensor
    flips: Tensor
    explained: Tensor
    share: Tensor


def separate(mixtures: Mixtures) -> SeparatedRows:
    """Return the rows of ``mixtures``: candidates are found and what they explain is subtracted, in turn."""
    differences, error = mixtures.differences()
    changed = mixtures.changed()
    none = torch.empty(0, dtype=torch.long, device=differences.device)
    found = SeparatedRows(
        none, differences.new_empty(0, differences.shape[2]), error.new_empty(0), none, none, error.new_empty(0)
    )
    rest = differences
    for _ in range(_SWEEPS):
        open_cells = changed & (rest.norm(dim=2) > 2 * error)
        fresh = candidate_sums(rest[open_cells], error[open_cells], open_cells.nonzero()[:, 0])
        fresh = _unrefuted(_without(fresh, found), mixtures, error, changed)
        before = len(found.rows)
        found, rest = _jointly_kept(_merged(found, fresh), mixtures, differences, error, changed)
        if len(fresh.rows) == 0 or len(found.rows) == before:
            break
    return found


@dataclass(frozen=True)
class _Candidates:
    """Distinct differences.

    Attributes:
        mixture: [R].
        rows: [R, F].
        error: [R].
        count: number of cells that show them [R].
    """

    mixture: Tensor
    rows: Tensor
    error: Tensor
    count: Tensor

    def take(self, index: Tensor) -> _Candidates:
        return _Candidates(self.mixture[index], self.rows[index], self.error[index], self.count[index])


def candidate_sums(rows: Tensor, error: Tensor, mixture: Tensor) -> _Candidates:
    """Merge differences [E, F] that are equal up to sign and rounding."""
    total = len(rows)
    if total == 0:
        return _Candidates(mixture, rows, error, mixture)
    norm = rows.norm(dim=1)
    # Not by norm: discrete rows with as many entries have one, and equal ones would lie apart.
    line = torch.randn(rows.shape[1], generator=derive(0, "line")).to(rows)
    order = torch.argsort((rows @ line).abs(), stable=True)
    order = order[torch.argsort(mixture[order], stable=True)]
    rows, error, mixture = rows[order], error[order], mixture[order]
    first, second = [], []
    for offset in range(1, min(_NEIGHBOURS, total - 1) + 1):
        left, right = rows[:-offset], rows[offset:]
        gap = torch.minimum((left - right).norm(dim=1), (left + right).norm(dim=1))
        same = (mixture[:-offset] == mixture[offset:]) & (
            gap <= 4 * (error[:-offset] + error[offset:]).clamp(max=0.05 * norm.max())
        )
        index = same.nonzero().squeeze(1)
        first.append(index)
        second.append(index + offset)
    group = components(torch.stack([torch.cat([mixture[:0], *first]), torch.cat([mixture[:0], *second])]), total)
    size = torch.bincount(group)
    count = len(size)
    head = torch.full((count,), total, device=rows.device).scatter_reduce(
        0, group, torch.arange(total, device=rows.device), "amin"
    )
    sign = torch.where((rows * rows[head[group]]).sum(1, keepdim=True) >= 0, 1.0, -1.0)
    mean = torch.zeros(count, rows.shape[1], device=rows.device).index_add_(0, group, rows * sign) / size[:, None]
    spread = torch.zeros(count, device=rows.device).index_add_(0, group, error) / size
    return _Candidates(mixture[head], mean, spread * size.rsqrt(), size)


def _without(fresh: _Candidates, found: SeparatedRows) -> _Candidates:
    """Return ``fresh`` without rows that were found already (left over where a flip was mispredicted)."""
    if len(found.rows) == 0 or len(fresh.rows) == 0:
        return fresh
    known = found.rows / found.rows.norm(dim=1, keepdim=True)
    new = torch.ones(len(fresh.rows), dtype=torch.bool, device=fresh.rows.device)
    for part in torch.split(torch.arange(len(new), device=new.device), 4096):
        cosine = (fresh.rows[part] / fresh.rows[part].norm(dim=1, keepdim=True)) @ known.mT
        cosine[fresh.mixture[part][:, None] != found.mixture] = 0
        new[part] = cosine.abs().amax(1) < 1 - 1e-5
    return fresh.take(new)


def _flips(rows: Tensor, error: Tensor, mixtures: Mixtures) -> tuple[Tensor, Tensor]:
    """Return s [R, M], and where it is certain in spite of the rows' errors [R, M]."""
    products = rows @ mixtures.directions
    length = mixtures.directions.norm(dim=0)
    slack = (0.5 * error + 1e-6 * rows.norm(dim=1))[:, None] * length
    on, sure = products > 0, products.abs() > slack
    step = on[:, mixtures.stop].to(torch.int8) - on[:, mixtures.start].to(torch.int8)
    return step, sure[:, mixtures.stop] & sure[:, mixtures.start]


def visible(error: Tensor, length: Tensor) -> Tensor:
    """Return whether rows of a ``length`` [...] that flip alone stand out from an ``error`` [...] of a difference."""
    return 2 * error < length


def flipping(rows: Tensor, mixtures: Mixtures) -> Tensor:
    """Return in which cells ``rows`` [R, F] flip [R, M]."""
    step = max(1, _PREDICTIONS_AT_ONCE // max(1, len(mixtures.start)))
    parts = [_flips(part, part.new_zeros(len(part)), mixtures)[0] != 0 for part in torch.split(rows, step)]
    return torch.cat(parts)


def _unrefuted(fresh: _Candidates, mixtures: Mixtures, error: Tensor, changed: Tensor) -> _Candidates:
    """Keep candidates none of whose certain flips falls on an unchanged cell, per mixture those shown most often.

    Beside far larger rows a flip is smaller than their rounding: cells with such an ``error`` [B, M] refute nothing.
    """
    alive = torch.ones(len(fresh.rows), dtype=torch.bool, device=fresh.rows.device)
    step = max(1, _PREDICTIONS_AT_ONCE // max(1, len(mixtures.start)))
    for part in torch.split(torch.arange(len(alive), device=alive.device), step):
        flip, sure = _flips(fresh.rows[part], fresh.error[part], mixtures)
        seen = visible(error[fresh.mixture[part]], fresh.rows[part].norm(dim=1, keepdim=True))
        alive[part] = ~((flip != 0) & sure & seen & ~changed[fresh.mixture[part]]).any(1)
    # Where nearly every cell changed nothing can be refuted, and a difference seen once is no evidence.
    alive &= (fresh.count > 1) | (changed.float().mean(1) < _REFUTABLE)[fresh.mixture]
    fresh = fresh.take(alive)
    order = torch.argsort(fresh.count, descending=True, stable=True)
    order = order[torch.argsort(fresh.mixture[order], stable=True)]
    fresh = fresh.take(order)
    return fresh.take(places(fresh.mixture) < _MOST_CANDIDATES)


def places(mixture: Tensor) -> Tensor:
    """Return the position of every entry among those of its mixture; ``mixture`` [R] is ascending."""
    place: Tensor = torch.arange(len(mixture), device=mixture.device) - torch.searchsorted(mixture, mixture)
    return place


def _merged(found: SeparatedRows, fresh: _Candidates) -> _Candidates:
    """Return found rows and fresh candidates together, sorted by mixture."""
    both = _Candidates(
        torch.cat([found.mixture, fresh.mixture]),
        torch.cat([found.rows, fresh.rows]),
        torch.cat([found.error, fresh.error]),
        torch.cat([found.explained, fresh.count]),
    )
    return both.take(torch.argsort(both.mixture, stable=True))


def _jointly_kept(
    candidates: _Candidates, mixtures: Mixtures, differences: Tensor, error: Tensor, changed: Tensor
) -> tuple[SeparatedRows, Tensor]:
    """Return the candidates that explain the cells together, and the residual of the differences [B, M, F].

    Args:
        differences, error: of B mixtures [B, M, F], [B, M].
        changed: which cells changed [B, M].
    """
    count, cells, features = differences.shape
    mixture, place = candidates.mixture, places(candidates.mixture)
    width = int(place.max().item()) + 1 if len(place) else 0
    step = differences.new_zeros(count, width, cells)
    rows = differences.new_zeros(count, width, features)
    rows[mixture, place] = candidates.rows
    block = max(1, _PREDICTIONS_AT_ONCE // max(1, cells))
    for part in torch.split(torch.arange(len(place), device=place.device), block):
        flip, _ = _flips(candidates.rows[part], candidates.error[part], mixtures)
        step[mixture[part], place[part]] = flip.to(step)
    step *= changed[:, None]
    gram = (step @ step.mT) * (rows @ rows.mT)
    weight = box_least_squares(gram.double(), ((step @ differences) * rows).sum(2).double())
    kept = weight > 0.5
    flips = (step != 0).sum(2)
    while True:
        rest = differences - (step * kept[..., None]).mT @ rows
        solved = changed & (rest.norm(dim=2) <= 2 * error)
        explained = ((step != 0) & solved[:, None]).sum(2)
        drop = kept & ((explained < 1) | (explained < _EXPLAINED * flips))
        if not bool(drop.any()):
            break
        kept &= ~drop
    share = solved.sum(1) / changed.sum(1).clamp(min=1)
    here = kept[mixture, place]
    mixture, place = mixture[here], place[here]
    found = SeparatedRows(
        mixture,
        candidates.rows[here],
        candidates.error[here],
        flips[mixture, place],
        explained[mixture, place],
        share[mixture],
    )
    return found, rest


def box_least_squares(gram: Tensor, moment: Tensor, steps: int = _LEAST_SQUARES_STEPS) -> Tensor:
    """Return z [B, n] in [0, 1] that minimises ``z' gram z / 2 - moment' z``.

    The method is accelerated projected gradient descent, diagonally scaled.

    Args:
        gram: [B, n, n], positive semidefinite; rows of zeros get z = 0.
        moment: [B, n].
    """
    if gram.shape[1] == 0:
        return moment
    scale = torch.where(gram.diagonal(dim1=1, dim2=2) > 0, gram.diagonal(dim1=1, dim2=2), torch.inf).rsqrt()
    gram, moment = gram * scale[:, :, None] * scale[:, None], moment * scale
    bound = gram.abs().sum(2).amax(1)
    bound = torch.minimum(bound, _largest_eigenvalue(gram)).clamp(min=1e-30)[:, None]
    top = 1 / scale.clamp(min=1e-300)
    point = torch.zeros_like(moment)
    ahead, momentum = point, 1.0
    for _ in range(steps):
        slope = (gram @ ahead[..., None]).squeeze(2) - moment
        following = torch.minimum((ahead - slope / bound).clamp(min=0), top)
        next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = following + (momentum - 1) / next_momentum * (following - point)
        point, momentum = following, next_momentum
    return point * scale


def _largest_eigenvalue(gram: Tensor) -> Tensor:
    value: Tensor = torch.linalg.eigvalsh(gram)[:, -1]
    return value * (1 + 1e-6)
