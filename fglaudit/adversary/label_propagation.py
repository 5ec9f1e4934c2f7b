"""Labels inferred from known labels and what was seen of others: label propagation over the edges that the observer
knows.

Known labels stay what they are and spread along random walks that end at them, or anywhere with a small chance
(personalised PageRank; Zhou et al., NIPS 2003). The frequencies of the known labels are added once, at the end, with a
small weight: a node that labels hardly reach would else take the most frequent class, however clear the little is that
reaches it, and pass it on.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import known_edges
from fglaudit.adversary.known_labels import known_labels
from fglaudit.view import View

_STEPS = 50
_DAMPING = 0.95
_PRIOR = 0.05
"""Weight of the frequencies of the known labels, beside labels of weight 1 at most."""
_EVEN_ODDS = 10.0
"""Odds of a node's own evidence for its likeliest class from which it weighs as much as all of its neighbours."""


def propagate_labels(view: View, nodes: Tensor, evidence: Tensor | None = None) -> Tensor:
    """Return class probabilities [n, C] of ``nodes`` [n].

    Without edges every node gets the frequencies of the known labels, times its evidence.

    Args:
        evidence: how likely each class makes what was seen of a node itself [N, C], up to a factor per node; zeros
            where nothing was seen. It is propagated too: a class that a node shows speaks for its neighbours.
    """
    labelled, y = known_labels(view)
    classes = view.public.num_classes
    prior = torch.bincount(y, minlength=classes).double() + 1
    prior = prior / prior.sum()
    seeds = torch.zeros(view.public.num_nodes, classes, dtype=torch.double)
    follow = torch.full((view.public.num_nodes, 1), _DAMPING, dtype=torch.double)  # how far neighbours are believed
    if evidence is not None:
        likely = _normalised(evidence.double())
        best = likely.amax(1, keepdim=True)
        follow = torch.where(best > 0, _EVEN_ODDS / (_EVEN_ODDS + best / (1 - best).clamp(min=1e-12)), follow)
        seeds = (1 - follow) * likely
    seeds[labelled] = one_hot(y, classes).double()
    fixed = torch.zeros(view.public.num_nodes, 1, dtype=torch.bool)
    fixed[labelled] = True
    row, column = known_edges(view)
    row, column = row[row != column], column[row != column]
    degree = torch.bincount(row, minlength=len(seeds)).unsqueeze(1)
    spread = seeds
    for _ in range(_STEPS):
        mean = torch.zeros_like(spread).index_add_(0, row, spread[column]) / degree.clamp(min=1)
        spread = torch.where(fixed, seeds, follow * mean + seeds)
    found = _normalised(spread + _PRIOR * prior)
    if evidence is not None:
        alone = (degree == 0) & ~fixed & (evidence.sum(1, keepdim=True) > 0)
        found = torch.where(alone, _normalised(prior * evidence), found)
    return found[nodes]


def _normalised(rows: Tensor) -> Tensor:
    """Return ``rows`` [R, C] that sum to 1; those of zeros stay."""
    return rows / rows.sum(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
