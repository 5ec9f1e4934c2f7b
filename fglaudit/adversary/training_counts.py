"""The one number that means weighted by training nodes keep from all clients but one: how many the one has.

The server returns ``(sum over k of n_k u_k + m u) / (S + m)``: the observer knows the n_k with their sum S, and the
uploads u_k of its own clients. For every m it has another upload u of the other one. But many weights move at the
other client by a known factor alone, the decay: those of words that none of its rows has. Each weight, taken for one of
these, gives an m; of those that are, it is the same whole number, of others any.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.structure import Training
from fglaudit.view import View

_MOVED = 1e-4
"""Share of the largest, from which a weight counts as moved by the observer's own clients."""
_WHOLE = 0.02
_MOST = 10**5
"""Training nodes of one client at most."""
_VOTES = 20
"""Weights that must agree on a number, beside three times as many as on the next one."""


def decay_alone(view: View) -> float | None:
    """Return by what share of themselves weights without a gradient change in a round; None if that is not known."""
    stated = view.public.structure.get(Training)
    if stated is None:
        return None
    if not stated.weight_decay:
        return 0.0
    known = stated.optimizer == "sgd" and stated.local_steps and not stated.momentum and not stated.proximal
    return (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps - 1 if known else None


def last_count(own: Tensor, counts: Tensor, mean: Tensor, unmoved: Tensor) -> int | None:
    """Return how many training nodes the other client has; None if weights do not agree on a number.

    Args:
        own: changes [c, D] of the observer's clients in a round, who have ``counts`` [c] training nodes.
        mean: change [D] of the weighted mean of theirs and the other one's.
        unmoved: change [D] of weights without a gradient.
    """
    away = mean - unmoved
    moved = away.abs() > _MOVED * away.abs().max()
    found = (counts @ own - counts.sum() * mean)[moved] / away[moved]
    whole = found[((found - found.round()).abs() < _WHOLE) & (found > 0.5) & (found < _MOST)].round().long()
    if not len(whole):
        return None
    votes, order = torch.bincount(whole, minlength=2).sort(descending=True)
    sure = int(votes[0]) >= max(_VOTES, 3 * int(votes[1]))
    return int(order[0]) if sure else None
