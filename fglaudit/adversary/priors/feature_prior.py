"""Prior of the features of unknown nodes, from rows that the observer already has and without any message.

A word's probability is its frequency among the known rows, shrunk towards the mean of the node's known neighbours
(graphs in use are homophilous): ``(kappa frequency + sum of n known neighbour rows) / (kappa + n)``. ``kappa`` is the
strength with the highest likelihood on the observer's own rows, each predicted from its own neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.graph import FeatureKind, positions
from fglaudit.view import View

_STRENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


@dataclass(frozen=True)
class FeaturePrior:
    """Prior of the rows of ``nodes`` [U].

    Attributes:
        mean: [U, F], float64. For binary (and scaled-binary) features the probability that an entry is non-zero.
        variance: [U, F]; for real-valued features the spread around ``mean``.
        level: value of a non-zero entry (1 for raw binary rows), the mean over known rows.
        size: mean number of non-zero entries per row.
        informed: whether any row was known.
    """

    mean: Tensor
    variance: Tensor
    level: float
    size: float
    informed: bool


def neighbor_sums(view: View, nodes: Tensor, known: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of known neighbours' ``values`` for each of ``nodes`` [U, F], and how many there are [U]."""
    row, column = known_edges(view)
    position = positions(nodes, view.public.num_nodes)
    source = positions(known, view.public.num_nodes)
    use = (row != column) & (position[row] >= 0) & (source[column] >= 0)
    total = torch.zeros(len(nodes), values.shape[1], dtype=values.dtype)
    total.index_add_(0, position[row[use]], values[source[column[use]]])
    return total, torch.bincount(position[row[use]], minlength=len(nodes))


def feature_prior(view: View, nodes: Tensor) -> FeaturePrior:
    """Return the prior of ``nodes`` [U], global ids; node -1 has no known neighbours."""
    known = _known_statistics(view)
    if len(known.nodes) == 0:
        blank = torch.zeros(len(nodes), view.public.num_features, dtype=torch.double)
        level = 0.0 if view.public.features is FeatureKind.REAL else 0.5
        return FeaturePrior(blank + level, blank + 1.0, 1.0, view.public.num_features / 2, False)
    real_nodes = (nodes >= 0).nonzero().squeeze(1)
    mean = known.frequency.expand(len(nodes), -1).clone()
    near, count = neighbor_sums(view, nodes[real_nodes], known.nodes, known.x)
    mean[real_nodes] = (known.strength * known.frequency + near) / (known.strength + count[:, None])
    return FeaturePrior(mean, known.spread.expand(len(nodes), -1), known.level, known.size, True)


@dataclass(frozen=True)
class _KnownStatistics:
    """What the known rows ``x`` [R, F] of ``nodes`` [R] say of others.

    Attributes:
        frequency, spread: mean and variance of an entry [F].
        level, size: as of :class:`FeaturePrior`.
        strength: of the shrinkage.
    """

    nodes: Tensor
    x: Tensor
    frequency: Tensor
    spread: Tensor
    level: float
    size: float
    strength: float


@once_per_view
def _known_statistics(view: View) -> _KnownStatistics:
    known = view.known_rows()
    real = view.public.features is FeatureKind.REAL
    if len(known.nodes) == 0:
        return _KnownStatistics(known.nodes, known.x, known.x, known.x, 1.0, 0.0, 0.0)
    x = known.x.double() if real else (known.x != 0).double()
    overall = x.mean() if not real else x.mean(0)
    frequency = (x.sum(0) + overall) / (len(x) + 1)
    spread = x.var(0, correction=0) if real else frequency * (1 - frequency)
    spread = (spread * len(x) + spread.mean() + 1e-12) / (len(x) + 1)
    nonzero = known.x[known.x != 0]
    level = float(nonzero.mean().item()) if len(nonzero) else 1.0
    near, count = neighbor_sums(view, known.nodes, known.nodes, x)
    strength = fit_strength(x[count > 0], near[count > 0], count[count > 0], frequency, spread, real)
    size = float((x != 0).sum(1).double().mean().item())
    return _KnownStatistics(known.nodes, x, frequency, spread, level, size, strength)


def fit_strength(x: Tensor, near: Tensor, count: Tensor, frequency: Tensor, spread: Tensor, real: bool) -> float:
    """Return the shrinkage strength with the highest likelihood of known rows given their neighbours.

    Args:
        x: known rows with at least one known neighbour [R, F].
        near, count: sum [R, F] and number [R] of each row's known neighbours.
        frequency, spread: prior mean and variance [F], or of each row [R, F].
        real: whether features are real-valued.
    """
    if len(x) == 0:
        return _STRENGTHS[-1]
    scores = []
    for strength in _STRENGTHS:
        mean = (strength * frequency + near) / (strength + count[:, None])
        if real:
            scores.append(-((x - mean) ** 2 / spread).sum())
        else:
            scores.append(torch.where(x > 0, mean.clamp(min=1e-9).log(), (-mean.clamp(max=1 - 1e-9)).log1p()).sum())
    return _STRENGTHS[int(torch.stack(scores).argmax().item())]
