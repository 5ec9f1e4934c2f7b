"""Labels inferred from known labels alone: label propagation over the edges that the observer knows."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges
from fglaudit.adversary.known_labels import known_labels
from fglaudit.view import View

_STEPS = 30
_DAMPING = 0.9


def propagate_labels(view: View, nodes: Tensor) -> Tensor:
    """Return class probabilities [n, C] of ``nodes`` [n].

    Without edges every node gets the frequencies of the known labels.
    """
    labelled, y = known_labels(view)
    classes = view.public.num_classes
    prior = torch.bincount(y, minlength=classes).double() + 1
    prior = prior / prior.sum()
    seeds = torch.zeros(view.public.num_nodes, classes, dtype=torch.double)
    seeds[labelled] = torch.nn.functional.one_hot(y, classes).double()
    fixed = torch.zeros(view.public.num_nodes, dtype=torch.bool)
    fixed[labelled] = True
    row, column = known_edges(view)
    row, column = row[row != column], column[row != column]
    degree = torch.bincount(row, minlength=len(seeds)).clamp(min=1).double().unsqueeze(1)
    spread = torch.where(fixed.unsqueeze(1), seeds, prior)
    for _ in range(_STEPS):
        mean = torch.zeros_like(spread).index_add_(0, row, spread[column]) / degree
        spread = torch.where(fixed.unsqueeze(1), seeds, _DAMPING * mean + (1 - _DAMPING) * prior)
    return spread[nodes]
