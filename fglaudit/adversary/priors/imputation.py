"""Sensitive entries imputed from what an observer knows without any message: the control of attribute inference.

Every row is laid out as its other features, its label, and the mean of the known sensitive entries among its
neighbours; rows that are known in part lack the sensitive ones. Three imputers of scikit-learn fill them in: the
column's mean, the nearest rows, and regressions in turn (chained equations). The one is used that ranks entries best in
a third of the whole rows when it is hidden from them: an attack is held against the best of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy.stats import kendalltau
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import known_edges
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.errors import FglauditError
from fglaudit.graph import positions
from fglaudit.view import View

NEIGHBORS = 15
PENALTY = 10.0
_ROUNDS = 2
_FOLD = 3
_FEWEST = 6
"""With fewer whole rows the mean alone is used."""


@dataclass(frozen=True)
class Imputed:
    """Sensitive entries of the rows that are known in part.

    Attributes:
        values: [P, c], in the order of ``view.partial``.
        variance: mean squared error of each column where it was hidden [c].
    """

    values: Tensor
    variance: Tensor


@once_per_view
def imputed(view: View) -> Imputed:
    """Return the imputed entries of ``view.partial``.

    Raises:
        FglauditError: the observer knows no row in part, or none whole.
    """
    known, partial = view.known_rows(), view.partial
    if partial is None or not len(known.nodes):
        raise FglauditError(
            "entries are imputed in rows that are known in part from rows that are known whole; the view lacks one of"
            " them; give the observer sensitive columns and auxiliary rows"
        )
    columns = partial.columns
    rows = torch.cat([known.x, partial.x]).double()
    kept = torch.ones(rows.shape[1], dtype=torch.bool)
    kept[columns] = False
    y = torch.cat([known.y, partial.y])
    label = one_hot(y.clamp(min=0), view.public.num_classes).double() * (y >= 0)[:, None]
    near = _near(view, torch.cat([known.nodes, partial.nodes]), known.nodes, known.x[:, columns].double())
    beside = torch.cat([rows[:, kept], label, near], 1)
    entries = rows[:, columns].clone()
    entries[len(known.nodes) :] = torch.nan
    held_out = torch.arange(len(known.nodes)) % _FOLD == 0
    if len(known.nodes) < _FEWEST:
        whole = entries[: len(known.nodes)]
        mean = whole.mean(0)
        return Imputed(mean.expand(len(partial.nodes), -1).clone(), whole.var(0, correction=0).clamp(min=1e-4))
    hidden = entries.clone()
    hidden[: len(known.nodes)][held_out] = torch.nan
    true = entries[: len(known.nodes)][held_out]
    trials = [_filled(kind, beside, hidden)[: len(known.nodes)][held_out] for kind in _imputers()]
    best = max(range(len(trials)), key=lambda i: _ranks(trials[i], true))
    found = _filled(_imputers()[best], beside, entries)[len(known.nodes) :]
    return Imputed(found, (trials[best] - true).square().mean(0).clamp(min=1e-4))


def _imputers() -> list[Any]:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # makes the next name importable
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer  # few processes need them
    from sklearn.linear_model import Ridge

    chained = IterativeImputer(Ridge(PENALTY), max_iter=_ROUNDS, tol=0.0, skip_complete=True, random_state=0)
    return [SimpleImputer(), KNNImputer(n_neighbors=NEIGHBORS), chained]


def _filled(imputer: Any, beside: Tensor, entries: Tensor) -> Tensor:
    """Return ``entries`` [R, c] with those that are not known filled in, from ``beside`` [R, b] and each other."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that so few rounds of regressions have not settled
        filled = imputer.fit_transform(torch.cat([beside, entries], 1).numpy())
    return torch.from_numpy(filled[:, beside.shape[1] :])


def _ranks(values: Tensor, true: Tensor) -> float:
    """Return how well ``values`` [R, c] rank the ``true`` ones: the share of unequal pairs in the right order, ties
    half, over all columns."""
    right = total = 0.0
    for value, column in zip(values.T, true.T, strict=True):
        unequal, told = _unequal_pairs(column), _unequal_pairs(value)
        if unequal and told:  # Kendall's tau: right less wrong pairs, over the geometric mean of both numbers
            right += kendalltau(value, column).statistic * math.sqrt(unequal * told) / 2
        right += unequal / 2
        total += unequal
    return right / total if total else 0.0


def _unequal_pairs(values: Tensor) -> int:
    counts = torch.unique(values, return_counts=True)[1]
    return (len(values) ** 2 - int((counts**2).sum().item())) // 2


def _near(view: View, nodes: Tensor, known: Tensor, values: Tensor) -> Tensor:
    """Return the mean of ``values`` [R, c] of the ``known`` [R] neighbours of each of ``nodes`` [M], other than itself;
    of a node without any the mean of all."""
    row, column = known_edges(view)
    source = positions(known, view.public.num_nodes)
    use = (row != column) & (source[column] >= 0)
    total = torch.zeros(view.public.num_nodes, values.shape[1], dtype=torch.double)
    total.index_add_(0, row[use], values[source[column[use]]])
    count = torch.bincount(row[use], minlength=view.public.num_nodes)[nodes, None]
    return torch.where(count > 0, total[nodes] / count.clamp(min=1), values.mean(0))
