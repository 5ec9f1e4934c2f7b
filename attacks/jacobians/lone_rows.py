"""Which rows found in a mixture may be claimed to be one row each: sums of rows that flip together look the same.

A row shows itself in the cells in which it flips (:mod:`fglaudit.attacks.jacobians.switched_sums`). Rows that flip in
the same cells, and in no others, are seen as one: their sum fits every equation that they do. Rows of one sign, or
nearly equal ones, flip together often, and no residual tells. What does tell:

* **Counting.** Rows that are disjoint sums of n rows, and n of them, are the n rows.
* **Chance.** Where a share c of the cells changed, ``-log(1 - c)`` rows flip in a cell if rows flip independently, so
  that n other rows have ``n m^k`` among them that flip in k given cells, m being ``-log(1 - c) / n``. Rows that are
  alike do so more often; how often is counted: m is at least the mean share of a row's cells in which the rows that
  the observer knows, and the other rows that were found, flip too.
* **Levels.** All non-zero entries of a discrete row are equal. Those of a sum are not, unless its rows have no entry
  in common: with a share d of ones, and half of the entries each, two rows have none with probability
  ``(1 - d)^(entries / 2)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.jacobians.switched_sums import Mixtures, flipping, places, visible

_MOST_COMPANIONS = 0.5
"""Expected number of rows hidden in one that is claimed. It is estimated high: on 26 crafted graphs, trained twice
each, 13 in a thousand claims are false; at 0.02 it is 8, and a quarter of the right ones is given up."""
_MOST_MISSING = 0.02
"""Share of rows that may be missing where all are said to be found."""
_LEVEL = 1e-3
"""Entries of discrete rows are equal up to this share of the largest, and errors."""


@dataclass(frozen=True)
class Population:
    """What an attack knows of the rows that mixtures are made of.

    Attributes:
        known: rows of the same kind [K, F]: the observer's own, and auxiliary ones.
        total: number of rows of each mixture, those of zeros included; None if unknown.
        discrete: whether all non-zero entries of a row are equal and positive.
    """

    known: Tensor
    total: int | None
    discrete: bool

    def complete(self, found: Tensor) -> Tensor:
        """Return in which mixtures the ``found`` [B] rows are all, but for a share that is accepted [B]."""
        return self.total_of(found) - found <= (-1 if self.total is None else _MOST_MISSING * found)

    def total_of(self, found: Tensor) -> Tensor:
        """Return the number of rows of each mixture [B], at least those that were ``found`` [B]."""
        return found if self.total is None else found.clamp(min=self.total)


def companions(
    rows: Tensor, mixture: Tensor, mixtures: Mixtures, error: Tensor, changed: Tensor, population: Population
) -> Tensor:
    """Return how many other rows are expected to flip in the cells of each row, and are then part of it [R].

    Args:
        rows: rows found [R, F].
        mixture: where each was found [R], ascending.
        error: bound on the norm of the error of each cell [B, M].
        changed: which cells changed [B, M].
    """
    if len(rows) == 0:
        return rows.new_zeros(0)
    place, size = places(mixture), torch.bincount(mixture, minlength=len(changed))
    flips = rows.new_zeros(len(changed), int(size.max().item()), changed.shape[1])
    flips[mixture, place] = flipping(rows, mixtures).to(rows)
    lengths = rows.new_zeros(flips.shape[:2])
    lengths[mixture, place] = rows.norm(dim=1)
    # A row cannot be seen beside far larger ones, whose rounding is larger than it.
    seen = visible(error[:, None], lengths[..., None]).to(rows)
    known = flipping(population.known.to(rows), mixtures).to(rows)
    mine = flips * seen
    own = mine.sum(2)
    shared = (mine @ flips.mT).sum(2) - own + mine @ known.sum(0)
    alike = shared / own.clamp(min=1) / (size[:, None] - 1 + len(known)).clamp(min=1)
    total = population.total_of(size).clamp(min=1)[:, None]
    share = (seen * changed[:, None]).double().sum(2) / seen.double().sum(2).clamp(min=1)
    base = -(1 - share).clamp(min=1e-9).log() / total
    expected = total * torch.maximum(alike.double(), base) ** own
    return expected[mixture, place]


def levels(rows: Tensor, error: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return which ``rows`` [R, F] have the levels of one discrete row [R], and how often a sum of two has them [R].

    Args:
        error: bound on the norm of each row's error [R].
        known: rows of the same kind [K, F]; if none has an entry, equal levels say nothing.
    """
    top = rows.abs().amax(1, keepdim=True)
    ones = rows.abs() > 0.5 * top
    level = (rows * ones).sum(1, keepdim=True) / ones.sum(1, keepdim=True).clamp(min=1)
    clean = ((rows - level * ones).abs() <= _LEVEL * top + 2 * error[:, None]).all(1)
    share = float((known != 0).double().mean().item()) if known.numel() else 0.0
    return clean, (1 - share) ** (ones.sum(1).double() / 2)


def lone(rows: Tensor, error: Tensor, expected: Tensor, complete: Tensor, population: Population) -> Tensor:
    """Return which rows are not sums of several [R].

    Args:
        rows: [R, F].
        error: bound on the norm of each row's error [R].
        expected: how many other rows are expected in each [R].
        complete: whether as many rows were found as there are [R].
    """
    if population.discrete:
        clean, chance = levels(rows, error, population.known)
        return clean & (complete | (expected * chance <= _MOST_COMPANIONS))
    return complete | (expected <= _MOST_COMPANIONS)
