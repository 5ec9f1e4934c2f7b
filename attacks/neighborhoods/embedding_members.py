"""Which known rows are in the closed neighbourhood behind a received embedding.

This shows edges and own rows of nodes that the observer does not see. Embeddings are means of rows under known weights
(:mod:`fglaudit.attacks.neighborhoods.embedding_equations`). Given rows that are known to exist, but not whose they are,
those that explain a node's embedding are found greedily: each step adds the row that shrinks the whitened residual
most, and stops where no row does better than chance, or where as many rows are found as the node has neighbours. Rows
are looked for with the attention of a typical row; of the likeliest few the one is taken that explains most with its
own: with few features attention differs so much between rows that the right one would explain no more than wrong ones.
Rows that are not known stay in the residual, as many as are missing to the degree, with the mean and the covariance of
the observer's own rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.neighborhoods.embedding_equations import EmbeddingEquations

_EVIDENCE = 12.0
"""Log likelihood ratio from which a row counts as found."""
_MIX = 0.5
"""Weight of the diagonal in the covariance of unknown rows."""
_MOST_STEPS = 200
_SHORTLIST = 8
"""Rows per embedding, the likeliest, whose own attention is used instead of a typical row's."""


@dataclass(frozen=True)
class MemberFit:
    """Which of T rows are in the neighbourhoods of J nodes, according to their embeddings.

    Attributes:
        found: whether the row is in the node's closed neighbourhood [J, T].
        misfit: relative misfit of a node's equations if the row were its own [J, T]; infinite where it was not
            computed.
    """

    found: Tensor
    misfit: Tensor


def explain(
    equations: EmbeddingEquations,
    rows: Tensor,
    prior: Tensor,
    given: Tensor,
    options: Tensor,
    candidates: Tensor,
    sizes: Tensor,
) -> MemberFit:
    """Return which of ``rows`` explain the embeddings.

    Args:
        equations: of J nodes.
        rows: distinct rows [T, F].
        prior: rows that unknown rows resemble [K, F].
        given: how many members are known to have each row [J, T].
        options: rows that may be the node's own [J, T]; one of them is found in any case.
        candidates: rows that unknown members may have [T].
        sizes: members of the closed neighbourhood of every node [J].
    """
    rows, prior = rows.double(), prior.double()
    mean = prior.mean(0)
    fit = _Fit(equations, rows, mean, _whitening(equations, prior, mean))
    counts = given.double()
    missing = (sizes - given.sum(1)).double()
    own = fit.rows_own.mean(0).expand(len(missing), -1).clone()
    asked = given.sum(1) < sizes
    going = missing > 0
    for _ in range(_MOST_STEPS):
        odds = fit.odds(counts, missing, own)
        first = asked & ~((counts > given) & options).any(1)
        odds = torch.where(
            first[:, None],
            odds.masked_fill(~options, -torch.inf),
            odds.masked_fill((counts > 0) | ~candidates, -torch.inf),
        ).masked_fill(~going[:, None], -torch.inf)
        odds = torch.where(first[:, None], odds, fit.shortlisted(odds, counts, missing, own))
        best, place = odds.max(1)
        add = going & torch.where(first, best > -torch.inf, best > _EVIDENCE)
        if not bool(add.any()):
            break
        counts[add, place[add]] += 1
        missing[add] -= 1
        own[add & first] = fit.rows_own[place[add & first]]
        going = add & (missing > 0)  # of the others nothing has changed, so that nothing would be added
    found = (counts > given) | ((given > 0) & options)
    return MemberFit(found, fit.misfit(counts, missing, found & options))


def _whitening(equations: EmbeddingEquations, prior: Tensor, mean: Tensor) -> Tensor:
    """Return the Cholesky factor of the covariance of one unknown row's share in the means [R D, R D].

    Its attention is unknown as well: that spreads every head by the variance of the known rows' attention.

    Args:
        prior: [K, F].
        mean: of ``prior`` [F].
    """
    centered = prior - mean
    covariance = centered.T @ centered / len(prior)
    covariance = (1 - _MIX) * covariance + _MIX * torch.diag(covariance.diagonal() + 1e-6)
    weight = equations.weight
    total = weight.T @ covariance @ weight
    attention = equations.series((prior @ equations.own.T).mean(0) + prior @ equations.neighbor.T)
    relative = (attention / attention.mean(0)).var(0)
    head = torch.arange(len(relative), device=weight.device)
    same = equations.per_unit(head)[:, None] == equations.per_unit(head)
    spread = weight.T @ (covariance + mean[:, None] * mean) @ weight
    total = total + equations.per_unit(relative)[:, None] * spread * same
    ridge = equations.std**2 + 1e-10 * float(total.diagonal().mean().item())
    factor: Tensor = torch.linalg.cholesky(
        total + ridge * torch.eye(len(total), dtype=total.dtype, device=total.device)
    )
    return factor


class _Fit:
    """Likelihoods of sets of rows; all rows in the units of the whitened equations."""

    def __init__(self, equations: EmbeddingEquations, rows: Tensor, mean: Tensor, factor: Tensor) -> None:
        self.equations, self.factor = equations, factor
        self.shares, self.mean_share = rows @ equations.weight, mean @ equations.weight
        self.rows_own, self.rows_neighbor = rows @ equations.own.T, rows @ equations.neighbor.T
        self.mean_neighbor = mean @ equations.neighbor.T
        self.directions = self._whiten(self.shares - self.mean_share)
        self.lengths = self.directions.square().sum(1)

    def _whiten(self, values: Tensor) -> Tensor:
        solved: Tensor = torch.linalg.solve_triangular(self.factor, values.T, upper=False)
        return solved.T

    def residual(self, means: Tensor, counts: Tensor, missing: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``y sum_k e_jk - W' sum_k e_jk h_k`` [J, R D], and the attention of a missing row [J, R H].

        Args:
            means: y [J, R D].
            counts: members found with each row [J, T].
            missing: number of other members [J].
            own: attention term of the node's own row [J, R H].
        """
        unit = self.equations.per_unit
        node, row = counts.nonzero(as_tuple=True)
        times = counts[node, row][:, None]
        each = times * self.equations.series(own[node] + self.rows_neighbor[row])
        typical = self.equations.series(own + self.mean_neighbor)
        total = (missing[:, None] * typical).index_add(0, node, each)
        sums = (missing[:, None] * unit(typical) * self.mean_share).index_add(0, node, unit(each) * self.shares[row])
        return means * unit(total) - sums, typical

    def odds(self, counts: Tensor, missing: Tensor, own: Tensor) -> Tensor:
        """Return the gain in log likelihood of every node by one more member of each row [J, T], its scale maximised.

        Args:
            counts, missing, own: as in :meth:`residual`.
        """
        rest, typical = self.residual(self.equations.means, counts, missing, own)
        rest = self._whiten(rest / self.equations.per_unit(typical))
        before = rest.square().sum(1, keepdim=True)
        after = before - 2 * rest @ self.directions.T + self.lengths
        floor = 1e-12 * self.lengths.mean().clamp(min=1e-30)
        gain: Tensor = rest.shape[1] / 2 * (before.clamp(min=floor) / after.clamp(min=floor)).log()
        return gain

    def shortlisted(self, odds: Tensor, counts: Tensor, missing: Tensor, own: Tensor) -> Tensor:
        """Return the gains [J, T] of the likeliest rows with the attention that each would get; of others none.

        Args:
            odds: as :meth:`odds` returns them, minus infinity for rows that are out of the question [J, T].
            counts, missing, own: as in :meth:`residual`.
        """
        unit = self.equations.per_unit
        likely, place = odds.topk(min(_SHORTLIST, odds.shape[1]), dim=1)
        gain = torch.full_like(likely, -torch.inf)
        rest, typical = self.residual(self.equations.means, counts, missing, own)
        before = self._whiten(rest / unit(typical)).square().sum(1)
        floor = 1e-12 * self.lengths.mean().clamp(min=1e-30)
        plain = unit(typical) * (self.equations.means - self.mean_share)
        for slot in range(likely.shape[1]):
            node = (likely[:, slot] > -torch.inf).nonzero().squeeze(1)
            row = place[node, slot]
            attention = self.equations.series(own[node] + self.rows_neighbor[row])
            more = unit(attention) * (self.equations.means[node] - self.shares[row]) - plain[node]
            after = self._whiten((rest[node] + more) / unit(typical[node])).square().sum(1)
            ratio = before[node].clamp(min=floor) / after.clamp(min=floor)
            gain[node, slot] = rest.shape[1] / 2 * ratio.log()
        return torch.full_like(odds, -torch.inf).scatter(1, place, gain)

    def misfit(self, counts: Tensor, missing: Tensor, asked: Tensor) -> Tensor:
        """Return the largest relative error of the equations with each row as the node's own [J, T].

        Args:
            counts, missing: as in :meth:`residual`; only nodes without missing members are tried.
            asked: which rows are tried [J, T].
        """
        errors = torch.full(asked.shape, torch.inf, dtype=torch.double, device=asked.device)
        node, row = (asked & (missing == 0)[:, None]).nonzero(as_tuple=True)
        if len(node):
            rest, typical = self.residual(self.equations.means[node], counts[node], missing[node], self.rows_own[row])
            scale = self.equations.per_unit(typical) * self.shares.abs().amax()
            errors[node, row] = (rest.abs() / scale).amax(1)
        return errors
