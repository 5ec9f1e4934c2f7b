"""Rows of nodes from how likely each class is, and from the rows of their known neighbours.

As :mod:`fglaudit.adversary.priors.feature_prior`, with the mean row of the node's class in place of the frequency of a
word among all rows: ``(kappa class mean + sum of n known neighbour rows) / (kappa + n)``. Where classes are not
certain, the class mean is the mean over them. ``kappa`` has the highest likelihood on the observer's own rows, each
predicted from the mean of its class without itself and from its own neighbours.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.priors.class_means import SHRINK, class_means
from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import feature_prior, fit_strength, neighbor_sums
from fglaudit.graph import FeatureKind
from fglaudit.view import Auxiliary, View


def rows_of_labels(view: View, nodes: Tensor, chances: Tensor) -> Tensor:
    """Return the expected rows of ``nodes`` [U, F], float32, learned from the observer's rows whose label it knows.

    ``view.messages`` is not read.

    Args:
        chances: how likely each label is, of every one of ``nodes`` [U, C], float64.
    """
    known = view.known_rows()
    labelled = known.y >= 0
    known = Auxiliary(known.nodes[labelled], known.x[labelled], known.y[labelled])
    return rows_of_classes(view, known, one_hot(known.y, chances.shape[1]).double(), nodes, chances)


def rows_of_classes(view: View, known: Auxiliary, kinds: Tensor, nodes: Tensor, chances: Tensor) -> Tensor:
    """Return the expected rows of ``nodes`` [U, F], float32: binary ones with the best expected F1, real ones the mean.

    ``view.messages`` is not read.

    Args:
        known: rows to learn from [R].
        kinds: their classes, one-hot [R, C], float64.
        chances: how likely each class is, of every one of ``nodes`` [U, C], float64.
    """
    real = view.public.features is FeatureKind.REAL
    x = known.x.double() if real else (known.x != 0).double()
    others = (kinds @ (kinds.T @ x) - x + SHRINK * x.mean(0)) / (kinds @ kinds.sum(0) - 1 + SHRINK).unsqueeze(1)
    near, count = neighbor_sums(view, known.nodes, known.nodes, x)
    seen = count > 0
    all_ = feature_prior(view, known.nodes[:1])
    strength = fit_strength(x[seen], near[seen], count[seen], others[seen], all_.variance, real)
    near, count = neighbor_sums(view, nodes, known.nodes, x)
    mean = (strength * (chances @ class_means(x, kinds)) + near) / (strength + count.unsqueeze(1))
    return (mean if real else best_f1_bits(mean) * all_.level).float()
