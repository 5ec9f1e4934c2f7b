"""What messages that share masks tell of the rows they were made of, where they are sums of rows.

What is added to all messages of a group falls out of their differences, and these are linear in the rows that the
observer lacks: ``y = base + A x + mask``, column by column. ``A`` is what the protocol makes of rows with a single one.
The rows are the minimum of ``|P (base + A x - y)|`` within the range of entries, P taking the mean of every group away,
by the alternating direction method of multipliers (Boyd et al., Foundations and Trends in Machine Learning 3, 2011).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.group_means import less_group_means
from fglaudit.adversary.planting import planted_rows
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.view import View

_CHECKS = 2
_MOST_ASKED = 16
"""Rehearsals that tell the response."""
_LINEAR = 1e-4
"""Relative error below which messages are sums of rows."""
_MOST_WORK = 3e10
_TURNS = 300
_TIED = 0.3
"""Penalty of the constraint, of the mean eigenvalue of the equations."""
_PRIOR = 1e-5
"""Weight of the prior: it decides where equations do not."""


def asking_rows(view: View, rng: torch.Generator) -> Iterator[Tensor]:
    """Yield rows [N, F] whose messages tell the response to each row that the observer lacks: none, single ones in
    different columns, and some drawn from the prior that the response is tested on; nothing where it takes too many."""
    num, width = view.public.num_nodes, view.public.num_features
    unknown = lacking(view)
    if len(unknown) > _MOST_ASKED * width:
        return
    yield torch.zeros(num, width)
    for block in torch.split(unknown, width):
        rows = torch.zeros(num, width)
        rows[block, torch.arange(len(block))] = 1.0
        yield rows
    for _ in range(_CHECKS):
        rows = torch.zeros(num, width)
        rows[unknown] = planted_rows(view, unknown, rng)
        yield rows


def lacking(view: View) -> Tensor:
    """Return the nodes whose rows the observer lacks [U]."""
    nodes = torch.arange(view.public.num_nodes)
    return nodes[~torch.isin(nodes, view.known_rows().nodes)]


@dataclass(frozen=True)
class Sums:
    """Messages as sums of rows: ``base + response @ rows``.

    Attributes:
        base: what known rows make of them [n, D].
        response: to each row that is not known [n, U].
        mean: of the rows that are not known [U, D].
        variance: of their entries [U, D].
        top: largest entry they may have.
    """

    base: Tensor
    response: Tensor
    mean: Tensor
    variance: Tensor
    top: float


def as_sums(view: View, asked: list[Tensor], made: Tensor) -> Sums | None:
    """Return messages as sums of rows, by what was ``made`` [A, n, D] of the rows ``asked`` [A, N, F]; None where they
    are not."""
    unknown, width = lacking(view), view.public.num_features
    if not asked or made.shape[2] != width or len(unknown) == 0:
        return None
    base = made[0]
    response = torch.cat([(part - base)[:, : len(block)] for part, block in _blocks(made, unknown)], dim=1)
    for rows, sent in zip(asked[-_CHECKS:], made[-_CHECKS:], strict=True):
        told = base + response @ rows[unknown].to(response)
        if not bool((told - sent).norm() <= _LINEAR * (sent - base).norm()):
            return None
    prior = feature_prior(view, unknown)
    top = float(torch.stack(asked[-_CHECKS:]).max().item())
    return Sums(base, response, prior.mean.to(base), prior.variance.to(base), top)


def _blocks(made: Tensor, unknown: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(made[1:-_CHECKS], torch.split(unknown, made.shape[2]), strict=True)


def between(sums: Sums, sent: Tensor, group: Tensor, discrete: bool) -> tuple[Tensor, Tensor]:
    """Return mean and variance of the messages without masks [n, D], by what the differences within groups tell.

    Args:
        sent: [n, D].
        group: number of the mask on each message [n].
        discrete: whether entries lie between 0 and the largest.
    """
    design, target = less_group_means(sums.response, group), less_group_means(sent - sums.base, group)
    count, width = design.shape[1], sent.shape[1]
    square = design.T @ design
    size = square.diagonal().mean().clamp(min=1e-30)
    eye = torch.eye(count, dtype=square.dtype, device=square.device)
    weak = torch.linalg.inv(square / size + _PRIOR * eye)
    right = design.T @ target / size
    rows = weak @ (right + _PRIOR * sums.mean)
    if discrete and count * count * width * _TURNS <= _MOST_WORK:
        rows = _within(square / size, right, sums, rows)
    spread = ((sums.response @ (_PRIOR * weak)) * sums.response).sum(1, keepdim=True).clamp(min=0)
    return sums.base + sums.response @ rows, spread * sums.variance.mean(0)


def _within(square: Tensor, right: Tensor, sums: Sums, start: Tensor) -> Tensor:
    """Return the rows with entries from 0 to the largest that fit best."""
    eye = torch.eye(len(square), dtype=square.dtype, device=square.device)
    inverse = torch.linalg.inv(square + (_TIED + _PRIOR) * eye)
    right = right + _PRIOR * sums.mean
    inside, off = start.clamp(0, sums.top), torch.zeros_like(start)
    for _ in range(_TURNS):
        free = inverse @ (right + _TIED * (inside - off))
        inside = (free + off).clamp(0, sums.top)
        off = off + free - inside
    return inside
