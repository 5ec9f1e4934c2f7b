"""The binary rows that a normalised sum was made of, from the sum alone, known up to a factor.

With ``A_ij = 1 / sqrt(D_i D_j)`` a sum over the closed neighbourhood of i is ``sum_j b_j / sqrt(D_j)`` up to a factor,
b_j the binary rows and D_j unknown integers. Rows are sparse, so that most words of the sum are those of one neighbour
alone: the commonest of its values are ``c / sqrt(D)``, and the c for which most words have such a value shows the
degrees, up to a common square-free factor that does not matter. What is no such value, or a rare one, is a sum of
several: the likeliest one in a box, which is that of the fewest terms. Neighbours of equal degree enter with the same
value, so that what is found for them is the sum of their rows.

This is :mod:`fglaudit.attacks.sums.subset_sum` for an observer who knows neither degrees, nor the factor, nor how many
neighbours there are, but has values that are right to a part in ten thousand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor

_EXACT = 3e-5
"""Values that differ by less, as a share of the largest, are one: rows found in gradients are right to about 1e-5."""
_LARGEST_DEGREE, _LARGEST_COMMON = 200, 120
"""Of the D_j, and of that of the commonest value."""
_COMMON_VALUES = 3
"""So many of the commonest values are taken for that of a single neighbour, one after the other."""
_TOO_MANY = 8
"""So many words are no coincidence of several neighbours, even where their values add up to another's."""
_ROW = 24
"""Words that a row may have at most, beyond half as many, before it counts as two."""
_REPEATS = 3
_MOST_LEVELS = 500
"""Different values of a sum that is still taken apart: that of Cora's largest hub, 169 nodes, has 293. Sums over many
hops have more, and all of them are single values by chance."""
_MOST_SUMS, _FEW_TERMS = 200_000, 6
"""Sums that are looked through, and their terms where there are more."""
_LOG_ODDS = -4.0
"""Of a word in a row: one in fifty."""


class SumTerms(NamedTuple):
    """What a sum is made of.

    Attributes:
        bits: of the neighbours, or of all neighbours of one degree together [A, F].
        most: how many neighbours that are at most [A].
    """

    bits: Tensor
    most: Tensor


def sum_terms(row: Tensor) -> SumTerms:
    """Take a sum [F], known up to a positive factor, apart; into nothing if it has too many different values."""
    words = row.nonzero().squeeze(1)
    none = SumTerms(torch.zeros(0, len(row), dtype=torch.bool), torch.zeros(0, dtype=torch.long))
    if not len(words):
        return none
    seen = row[words].double().cpu().numpy()
    values, level, counts = _levels(seen / seen.max())
    if len(values) > _MOST_LEVELS:
        return none
    single = _single_values(values, counts)
    parts, sizes = _parts(values, counts, single)
    if not len(parts):
        return none
    limit = values[-1] + _EXACT
    few = np.full(len(parts), _REPEATS)
    loose = _explained(values, bounded_sums(parts, few, limit), few)
    most = np.maximum(loose.max(axis=0), np.ceil((sizes - _ROW / 2) / _ROW).astype(int)).clip(min=1)
    found = _explained(values, bounded_sums(parts, most, limit), most)
    bits = torch.zeros(len(parts), len(row), dtype=torch.bool)
    bits[:, words.cpu()] = torch.from_numpy(found[level].T > 0)
    return SumTerms(bits, torch.from_numpy(most))


def _levels(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the different values [L], ascending, which of them each of ``values`` [W] is, and how many are."""
    order = np.argsort(values)
    level = np.empty(len(values), dtype=int)
    level[order] = np.cumsum(np.diff(values[order], prepend=values[order[0]]) > _EXACT)
    counts = np.bincount(level)
    return np.bincount(level, values) / counts, level, counts


def _single_values(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return which of ``values`` [L] are ``c / sqrt(D)`` for the c with which most words have such a value [L]."""
    common = values[np.argsort(-counts, kind="stable")[:_COMMON_VALUES]]
    degree = np.arange(2, _LARGEST_COMMON + 1)
    scale = (common[:, None] * np.sqrt(degree)).reshape(-1, 1)
    integer = np.square(scale / values).round().clip(2, _LARGEST_DEGREE)
    on = np.abs(scale / np.sqrt(integer) - values) <= _EXACT
    # The larger the degrees, the denser such values lie, and the more of them are met by chance.
    cost = np.log(degree) + 0.02 * degree
    score = on @ np.minimum(counts, 40) - np.tile(cost, len(common))
    return np.asarray(on[score.argmax()])


def _parts(values: np.ndarray, counts: np.ndarray, single: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values [A] of single neighbours, ascending, and how many words have them: a value that smaller ones
    add up to is one of its own only if it is common."""
    parts: list[float] = []
    sizes: list[int] = []
    for value, count in zip(values[single], counts[single], strict=True):
        if parts and count < _TOO_MANY:
            sums = bounded_sums(np.array(parts), np.full(len(parts), 2), value + _EXACT)
            if bool((np.abs(sums.totals - value) <= _EXACT).any()):
                continue
        parts.append(float(value))
        sizes.append(int(count))
    return np.array(parts), np.array(sizes)


class _Sums(NamedTuple):
    """Sums of parts, by the number of their terms.

    Attributes:
        totals: [T]; the first has no terms.
        before: which sum each goes on from [T], the first from itself.
        part: which part it adds to that [T].
    """

    totals: np.ndarray
    before: np.ndarray
    part: np.ndarray

    def counts(self, which: np.ndarray, parts: int) -> np.ndarray:
        """Return how many of each of the ``parts`` the sums ``which`` [n] have [n, A]."""
        found, rows = np.zeros((len(which), parts), dtype=int), np.arange(len(which))
        while len(rows := rows[which[rows] > 0]):
            found[rows, self.part[which[rows]]] += 1
            which = self.before[which]
        return found


def bounded_sums(parts: np.ndarray, most: np.ndarray, limit: float) -> _Sums:
    """Return all sums up to ``limit`` of at most ``most`` [A] of each of ``parts`` [A], ascending; of at most
    ``_FEW_TERMS`` where there are more than a bound, and of as few as it takes, two at least, where there still are.

    A sum of one term more adds a part that is no smaller, so that each is made once.
    """
    totals, part, same = np.zeros(1), np.zeros(1, dtype=int), np.zeros(1, dtype=int)  # same: how many of its last part
    found, first, count = [(totals, np.zeros(1, dtype=int), part)], 0, 1
    for terms in range(1, int(most.sum()) + 1):
        low = part + (same >= most[part])
        sizes = (np.searchsorted(parts, limit - totals, side="right") - low).clip(min=0)
        count += int(sizes.sum())
        if count > _MOST_SUMS and terms > 2:
            found = found[: _FEW_TERMS + 1]
            break
        before = np.repeat(np.arange(len(totals)), sizes)
        if not len(before):
            break
        added = np.arange(len(before)) - np.repeat(sizes.cumsum() - sizes - low, sizes)
        same = np.where((added == part[before]) & (terms > 1), same[before], 0) + 1
        totals, part = totals[before] + parts[added], added
        found.append((totals, before + first, part))
        first += len(sizes)
    return _Sums(*(np.concatenate(each) for each in zip(*found, strict=True)))


def _explained(values: np.ndarray, sums: _Sums, most: np.ndarray) -> np.ndarray:
    """Return the likeliest counts of each of ``values`` [L, A] among ``sums``; zeros for a value that is none."""
    width = 2 * _EXACT
    above = np.append(values, np.inf)[np.searchsorted(values, sums.totals - width)]
    near = (above <= sums.totals + width).nonzero()[0]
    order = near[np.argsort(sums.totals[near], kind="stable")]
    low, high = (np.searchsorted(sums.totals[order], values + side * width) for side in (-1, 1))
    sizes = high - low
    first = sizes.cumsum() - sizes
    counts = sums.counts(order[np.repeat(low - first, sizes) + np.arange(sizes.sum())], len(most))
    ways = (gammaln(most + 1.0) - gammaln(counts + 1.0) - gammaln(most - counts + 1.0)).sum(axis=1)
    score = ways + _LOG_ODDS * counts.sum(axis=1)
    found = np.zeros((len(values), counts.shape[1]), dtype=int)
    for place in sizes.nonzero()[0]:
        found[place] = counts[first[place] + score[first[place] : first[place] + sizes[place]].argmax()]
    return found
