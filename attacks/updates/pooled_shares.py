"""Label distributions of all nodes of several clients, from two readings of those of their training nodes.

Readings err, by about as much as two of one client differ, and training nodes are a draw of all nodes: a distribution
read is worth so many labels drawn from it. Where clients differ by no more than such draws do, they are taken to be
alike: distributions of clients are drawn around a common one (Dirichlet), whose concentration follows from how far the
readings lie apart (method of moments for the Dirichlet-multinomial, Mosimann 1962), and what is returned is the
posterior mean.
"""

from __future__ import annotations

from torch import Tensor

_TRAINED = 100.0
"""How many labels a reading without an error is worth: clients have about as many training nodes."""
_CLEAREST = 1e-3
"""Least share of the variance between clients that is, or is not, between their distributions."""


def pooled_shares(first: Tensor, second: Tensor, known: Tensor) -> Tensor:
    """Return the distributions [K, C] of K clients.

    Args:
        first, second: two readings of each [K, C].
        known: how many labels of every class are known from all clients [C].
    """
    read = (first + second) / 2
    mixed = (1 - read.square().sum(1)).mean().clamp(min=1e-12)  # variance of one label
    error = (first - second).square().sum(1).mean() / 4
    labels = 1 / (error / mixed + 1 / _TRAINED)
    common = known + 1 + labels * read.sum(0)
    common = common / common.sum()
    apart = (read - common).square().sum(1).mean() / (1 - common.square().sum()).clamp(min=1e-12)
    between = ((apart - 1 / labels) / (1 - 1 / labels).clamp(min=_CLEAREST)).clamp(_CLEAREST, 1 - _CLEAREST)
    alike = (1 - between) / between  # labels that the common distribution is worth
    shares: Tensor = (labels * read + alike * common) / (labels + alike)
    return shares
