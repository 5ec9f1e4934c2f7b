"""Rows behind sums of Jacobians that were clipped to a norm: lone flips of masks, against the drift of the clip.

A Jacobian that is clipped to the L2 norm B enters the sum as ``A_kj B J_j / |J_j|`` where ``|J_j| > B``. For one sample
``|J_j|^2 = |x_j|^2 sum over active h of |W2[h]|^2 + C sum_h relu(x_j W1[:, h])^2``: the models say how it grows, only
the masks say by how much for each node. What all nodes have in common, the root mean square over rows of unit length
that point anywhere,

    L(t)^2 = sum_h |W2[h]|^2 / 2 + C |W1|^2 / (2 F),

is divided out. What is left of each sender's own factor moves a sum a little in every round, in all hidden units alike:
the *drift*. A mask that flips moves one unit by a whole term ``A_kj x_j``, which stands out where no other mask of that
unit flips in the same round. Its direction is then wrong by the drift over its length at most, and the drift of a round
is the median over units, which holds noise too. A lone flip must cross the hyperplane of its own unit in the round in
which it is seen, and be seen where else it must cross one. A row that comes and the negative of one that leaves are
the same difference: signs stay open, but for rows without negative entries.

As models move evenly, so does the drift: differences are also taken without those of the round before or after, which
are searched in the same way, with the drift that is left in them.

Equal directions are averaged with the weights of their precisions. A row is claimed where it was seen in two places, is
no sum of rows that flip together (:mod:`fglaudit.attacks.jacobians.lone_rows`), and the remaining error is too small
for another direction. Nothing is exact here: drift is never zero, so a claim may be wrong, rarely.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.attacks.jacobians.lone_rows import Population, companions, lone
from fglaudit.attacks.jacobians.mixture_rows import MixtureRows
from fglaudit.attacks.jacobians.switched_sums import Mixtures

_STANDS_OUT = 20.0
"""How many times the drift a difference must be to be taken for a lone flip."""
_DRIFT = 1.5
"""How much larger than its median the drift of a unit is taken to be."""
_PRECISE = 0.012
"""Relative error of a claimed row: less than makes a cosine of 0.9999."""
_SLACK = 4.0
"""Deviations of an activation in which it is not told whether a mask is on."""
_SEEN = 0.6
"""Share of a row's certain flips that must be seen, and by how much one may differ in length."""
_PLACES = 2
"""In how many places a row must be seen for a claim: two rows that flip together rarely do so twice."""
_SAME_ROW = 0.99
_MOST = 3000
_AT_ONCE = 128


@dataclass(frozen=True)
class _Flips:
    """Differences of sums between two rounds that may be lone flips, the clearest first.

    Attributes:
        change: what the sum changed by [R, F].
        error: relative error of its direction [R].
        round, unit: where it was seen [R].
    """

    change: Tensor
    error: Tensor
    round: Tensor
    unit: Tensor

    def of(self, rows: Tensor) -> _Flips:
        """Return those of ``rows`` (mask or ids)."""
        return _Flips(self.change[rows], self.error[rows], self.round[rows], self.unit[rows])


def common_length(w1: Tensor, w2: Tensor) -> Tensor:
    """Return L [T], the root mean square norm of the Jacobians of unit rows that point anywhere.

    Args:
        w1: [T, F, H].
        w2: [T, H, C].
    """
    active = 0.5 * w2.square().sum((1, 2))
    hidden = 0.5 * w2.shape[2] * w1.square().sum((1, 2)) / w1.shape[1]
    return (active + hidden).sqrt()


def lone_flips(sums: Tensor, w1: Tensor, w2: Tensor, population: Population) -> MixtureRows:
    """Return rows behind the sums of one receiver, each as long as its weight A_kj times the bound, about.

    Args:
        sums: G [T, H, F] of T rounds.
        w1: first-layer weights of these rounds [T, F, H].
        w2: second-layer weights [T, H, C].
        population: what is known of the rows.
    """
    scaled = sums.double() * common_length(w1.double(), w2.double())[:, None, None]
    difference, weights = scaled.diff(dim=0), w1.double()
    found = [_outstanding(part) for part in (difference, *_without_drift(difference))]
    flips = _crossing(_Flips(*(torch.cat([getattr(part, f.name) for part in found]) for f in fields(_Flips))), weights)
    flips = flips.of(_seen_elsewhere(flips, difference, weights))
    rows, error = _averaged(flips.of(flips.error.argsort(stable=True)))
    if population.discrete:
        rows = torch.where(rows.sum(1, keepdim=True) < 0, -rows, rows)
    claimed = error <= _PRECISE
    claimed[claimed.clone()] = _one_row_each(rows[claimed], error[claimed], difference, weights, population)
    mixture = torch.zeros(len(rows), dtype=torch.long, device=sums.device)
    return MixtureRows(mixture, rows.to(sums), claimed, torch.full_like(claimed, population.discrete))


def _one_row_each(rows: Tensor, error: Tensor, difference: Tensor, weights: Tensor, population: Population) -> Tensor:
    """Return which rows are not sums of rows that flip together [R].

    Args:
        rows: [R, F].
        error: relative error of each [R].
        difference: of sums between two rounds [T - 1, H, F].
        weights: [T, F, H].
    """
    size = difference.norm(dim=2)
    drift = size.median(1, keepdim=True).values.expand_as(size).flatten()[None]
    changed = size.flatten()[None] > _STANDS_OUT * drift
    first = torch.arange(size.numel(), device=rows.device)
    directions = weights.transpose(0, 1).flatten(1)
    cells = Mixtures(difference[None], size[None], directions, first, first + size.shape[1])
    mixture = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    expected = companions(rows, mixture, cells, drift, changed, population)
    complete = population.complete(torch.tensor([len(rows)], device=rows.device))[mixture]
    return lone(rows, error * rows.norm(dim=1), expected, complete, population)


def joined(exact: MixtureRows, flips: MixtureRows) -> MixtureRows:
    """Return the rows of both, those of ``flips`` only where no claimed row of ``exact`` has their direction."""
    known = normalize(exact.rows[exact.claimed], dim=1)
    if len(known):
        fresh = (normalize(flips.rows, dim=1) @ known.mT).abs().amax(1) < _SAME_ROW
        flips = MixtureRows(*(getattr(flips, field.name)[fresh] for field in fields(MixtureRows)))
    return MixtureRows(*(torch.cat([getattr(exact, f.name), getattr(flips, f.name)]) for f in fields(MixtureRows)))


def _without_drift(difference: Tensor) -> tuple[Tensor, Tensor]:
    """Return the differences [T - 1, H, F] without the ones before, and without the ones after, where there are any."""
    last, first = difference.clone(), difference.clone()
    last[1:] -= difference[:-1]
    first[:-1] -= difference[1:]
    return last, first


def _outstanding(difference: Tensor) -> _Flips:
    """Return the differences [T - 1, H, F] that stand out from the drift of their round."""
    size = difference.norm(dim=2)
    drift = size.median(1, keepdim=True).values.clamp(min=1e-7 * size.mean().clamp(min=1e-30))
    ratio = (size / drift).flatten()
    picked = (ratio > _STANDS_OUT).nonzero().squeeze(1)
    picked = picked[ratio[picked].argsort(descending=True, stable=True)][:_MOST]
    units = size.shape[1]
    return _Flips(difference.flatten(0, 1)[picked], _DRIFT / ratio[picked], picked // units, picked % units)


def _crossing(flips: _Flips, weights: Tensor) -> _Flips:
    """Return the flips whose row comes to the active side of its unit in its round, as far as its error tells.

    A row that leaves that side has left the sum: its difference is its negative, which comes to it.
    """
    before = (weights[flips.round, :, flips.unit] * flips.change).sum(1)
    after = (weights[flips.round + 1, :, flips.unit] * flips.change).sum(1)
    slack = _slack(flips, weights.norm(dim=1)[flips.round, flips.unit])
    return flips.of((before < slack) & (after > -slack) & (after > before))


def _slack(flips: _Flips, norms: Tensor) -> Tensor:
    """Return the error of an activation under weights of ``norms`` [R]."""
    size = flips.change.shape[1] ** 0.5
    slack: Tensor = _SLACK * flips.error * flips.change.norm(dim=1) / size * norms
    return slack


def _seen_elsewhere(flips: _Flips, difference: Tensor, weights: Tensor) -> Tensor:
    """Return which flips [R] are seen in most of the places where their rows certainly flip."""
    norms, kept = weights.norm(dim=1), []
    for part in torch.split(torch.arange(len(flips.change), device=weights.device), _AT_ONCE):
        here = flips.of(part)
        length = here.change.norm(dim=1)
        active = torch.einsum("tfh,rf->thr", weights, here.change)
        slack = _SLACK * here.error * length / weights.shape[1] ** 0.5 * norms[..., None]
        step = (active > 0).double().diff(dim=0) * (active.abs() > slack)[1:] * (active.abs() > slack)[:-1]
        shown = torch.einsum("thf,rf->thr", difference, here.change / length.square()[:, None])
        hits = ((shown * step - 1).abs() < _SEEN) & (step != 0)
        kept.append((hits.sum((0, 1)) + 1) > _SEEN * ((step != 0).sum((0, 1)) + 1))
    return torch.cat(kept) if kept else torch.zeros(0, dtype=torch.bool, device=weights.device)


def _averaged(flips: _Flips) -> tuple[Tensor, Tensor]:
    """Return the distinct rows [R, F] and their relative errors [R], infinite where seen only once."""
    direction = normalize(flips.change, dim=1)
    cosine = direction @ direction.mT
    same = cosine.abs() > _SAME_ROW
    free = torch.ones(len(direction), dtype=torch.bool, device=direction.device)
    rows, errors = [], []
    for index in range(len(direction)):  # the clearest one first; there are few
        if bool(free[index]):
            group = same[index] & free
            free &= ~group
            precision = flips.error[group].square().reciprocal()
            weight = precision * cosine[index, group].sign() / precision.sum()
            rows.append((flips.change[group] * weight[:, None]).sum(0))
            places = torch.stack([flips.round[group], flips.unit[group]])
            seen_once = torch.unique(places, dim=1).shape[1] < _PLACES
            errors.append(precision.sum().rsqrt() + (torch.inf if seen_once else 0.0))
    if not rows:
        return flips.change[:0], flips.error[:0]
    return torch.stack(rows), torch.stack(errors)
