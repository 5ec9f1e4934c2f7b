"""Sums of gradients from steps of Adam: the sign of every entry, times the size that such an entry typically has.

Adam that starts afresh divides a gradient by its own size: of the entry g of a sum of gradients its first step shows
the sign, and the mean of a few steps how steady the sign is; entries without a gradient are told exactly
(:mod:`fglaudit.adversary.uploads.adam_steps`). How large g is must come from elsewhere. Before an upload is read, any
half of a client's N / K nodes may be those that train. Over these draws g has, with weights of 1 / n for n = N / 2K
nodes,

    E g = mean_j G_j,    Var g <= mean_j G_j^2 / n,    so a typical size s = ((E g)^2 + mean_j G_j^2 / n)^1/2.

So ``sign * s`` is read as g, with an error of the size of s, plus the root mean square of s over all entries: small
entries are as wrong as dropout, unknown rows and the models between steps make them. From there on it is the sum of
:mod:`fglaudit.attacks.models.loss_gradients`, solved with weights. That signs of linear measurements determine a vector
up to its length, even by least squares, is known of Gaussian ones (Plan and Vershynin, "The generalized Lasso with
non-linear observations", IEEE Transactions on Information Theory 2016).

The squares of a node's gradient are taken as the sum of the squares of its neighbours' parts, without what these share.
"""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.attacks.models.loss_gradients import Gradients, GradientSums, each
from fglaudit.nn.sparse import SparseMatrix

_TRAINING = 0.5
"""Share of the nodes that is taken to train: of the typical size, which no weight depends on much."""
_PRICE = 6.0
"""Of a weight of 1 / n, in squared errors per round: entries are wrong in the same direction in many rounds, and nodes
with small gradients would be given large weights for it."""


def with_sizes(sums: GradientSums, clients: int) -> GradientSums:
    """Return ``sums``, whose rounds show mean directions of Adam, with typical sizes and errors of what is seen.

    Args:
        clients: how many the known nodes are dealt to.
    """
    squares = _squared(sums.sums), _squared(sums.adjacency)
    return dataclasses.replace(sums, rounds=tuple(_sized(sums, squares, found, clients) for found in sums.rounds))


def training_nodes(nodes: int, clients: int) -> float:
    """Return how many of the ``nodes`` one of ``clients`` is taken to train on."""
    return max(_TRAINING * nodes / clients, 1.0)


def price(sums: GradientSums, clients: int) -> float:
    """Return what :meth:`GradientSums.weights` of :func:`with_sizes` are to cost per round."""
    return _PRICE * training_nodes(sums.rounds[0].back.shape[1], clients) ** 2


def _sized(sums: GradientSums, squares: tuple[SparseMatrix, SparseMatrix], found: Gradients, clients: int) -> Gradients:
    senders, nodes, _ = found.back.shape
    even = found.back.new_full((senders, nodes), 1 / nodes)
    mean = each(sums.sums.T, sums.at_inputs(even, found))
    parts = found.open * each(squares[1], found.back.square() / nodes)
    spread = each(squares[0].T, parts) / training_nodes(nodes, clients)
    size = (mean.square() + spread).sqrt()
    error = (size.square() + size.square().mean((1, 2), keepdim=True)).sqrt()
    # The error is the unit: a round whose gradients are small says as much as another.
    return dataclasses.replace(found, seen=found.seen * size, error=error.clamp(min=1e-30))


def _squared(matrix: SparseMatrix) -> SparseMatrix:
    """Return the squares of the entries of ``matrix``."""
    stored = matrix.forward
    start, column = stored.crow_indices().long(), stored.col_indices().long()
    row = torch.repeat_interleave(torch.arange(len(start) - 1, device=start.device), start.diff())
    return SparseMatrix.from_entries(row, column, stored.values().square(), (stored.shape[0], stored.shape[1]))
