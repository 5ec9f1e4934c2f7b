"""Search for the unknown scale of every neighbour's row among the values that a sum takes.

Where a degree is unknown, neighbour j enters with coefficient ``1 / sqrt(D)`` for some integer D. Where rows are
normalised, it enters with ``w / q``: q is an integer and also the number of its entries. Rows are sparse, so most
entries of a sum are the word of one neighbour alone: the right integer is met by many entries of every sum the
neighbour is part of, a wrong one by few. Neighbours with equal coefficients before scaling cannot be distinguished and
share the integers found; which of them has which is a guess unless another sum decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations

_PRIOR_WEIGHT = 0.25
"""Weight of an integer's frequency among known rows against its hits; it mainly breaks ties."""
_NO_HIT = 0.02


def fill_degrees(equations: NeighborEquations, size: float, known: Tensor, largest: int) -> NeighborEquations:
    """Return the equations with unknown coefficients ``1 / sqrt(D)`` filled in.

    Args:
        size: expected number of entries per row.
        known: D of the observer's own nodes [n], a sample of typical values.
        largest: largest D to try.
    """
    unknown = equations.coefficients.isnan()
    ones = dataclasses.replace(equations, coefficients=torch.where(unknown, 1.0, equations.coefficients))
    integers = torch.arange(2, largest + 1)
    found = _search(ones, integers, lambda q: q.rsqrt(), lambda q: torch.full_like(q, size), unknown, known)
    filled = torch.where(unknown, found[equations.columns].double().rsqrt(), equations.coefficients)
    return dataclasses.replace(equations, coefficients=filled)


def fill_counts(
    equations: NeighborEquations, value: Callable[[Tensor], Tensor], known: Tensor, largest: int
) -> NeighborEquations:
    """Return the equations of the binary rows behind rows ``value(q) x bits`` with q entries.

    Args:
        known: numbers of entries of known rows [n], a sample of typical values.
    """
    every = torch.ones_like(equations.columns, dtype=torch.bool)
    found = _search(equations, torch.arange(1, largest + 1), value, lambda q: q, every, known)
    filled = equations.coefficients * value(found[equations.columns].double())
    return dataclasses.replace(equations, coefficients=filled)


def _search(
    equations: NeighborEquations,
    integers: Tensor,
    value: Callable[[Tensor], Tensor],
    expected: Callable[[Tensor], Tensor],
    searched: Tensor,
    known: Tensor,
) -> Tensor:
    """Return the best integer of every unknown [U].

    Args:
        integers: candidates [Q], ascending.
        value: entry of a row of scale q, before its coefficient.
        expected: number of entries of a row of scale q.
        searched: which terms have an unknown scale [E].
        known: integers of known rows [n].
    """
    integers = integers.to(equations.values.device)
    term = searched.nonzero().squeeze(1)
    row, column, weight = equations.rows[term], equations.columns[term], equations.coefficients[term]
    wanted = expected(integers.double())
    sorted_values, order = equations.values.sort(dim=1)
    slack = equations.tolerance.gather(1, order)
    hits = _hits(sorted_values, slack, row, weight[:, None] * value(integers.double()))
    share = (hits / wanted).clamp(max=1)
    terms = torch.bincount(column, minlength=equations.num_unknowns).clamp(min=1)
    seen = torch.bincount(known.clamp(max=int(integers[-1])), minlength=int(integers[-1]) + 1)[
        int(integers[0]) :
    ].double()
    prior = _PRIOR_WEIGHT * ((seen + 0.1) / (seen + 0.1).sum()).log().to(hits.device)
    score = prior.expand(equations.num_unknowns, -1).clone()
    score.index_add_(0, column, share.clamp(min=_NO_HIT).log() / terms[column, None])
    # Rows an integer can serve: the entries that show it, in rows' worth.
    capacity = (hits / wanted).round().clamp(min=1).long()
    group = torch.unique(torch.stack([row.double(), weight]), dim=1, return_inverse=True)[1]
    for _ in range(4 * int(torch.bincount(group).max().item()) if len(group) else 0):
        best = score.argmax(1)
        choice = best[column]
        claim = group * len(integers) + choice
        by_score = score[column, choice].argsort(descending=True, stable=True)
        ordered = by_score[claim[by_score].argsort(stable=True)]
        kinds, size = torch.unique_consecutive(claim[ordered], return_counts=True)
        rank = torch.arange(len(ordered), device=size.device) - torch.repeat_interleave(size.cumsum(0) - size, size)
        lost = ordered[rank >= capacity[ordered, choice[ordered]]]
        if not len(lost) or not len(kinds):
            break
        score[column[lost], choice[lost]] = -torch.inf
    return integers[score.argmax(1)]


def _hits(sorted_values: Tensor, slack: Tensor, row: Tensor, wanted: Tensor) -> Tensor:
    """Count the entries of each term's row within rounding of ``wanted`` [E, Q]; returns [E, Q], float64."""
    width = 2 * slack.amax(1)[row][:, None]
    low = torch.searchsorted(sorted_values[row], wanted - width)
    high = torch.searchsorted(sorted_values[row], wanted + width, right=True)
    return (high - low).double()
