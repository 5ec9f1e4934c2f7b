"""The one number that means weighted by training nodes keep from all clients but one: how many the one has.

The server returns ``(sum over k of n_k u_k + m u) / (S + m)``: the observer knows the n_k with their sum S, and the
uploads u_k of its own clients. For every m it has another upload u of the other one. But many weights have no gradient
at the other client, those of words that none of its rows has. They move as they do at any of the observer's clients
that lacks the word too, whatever the optimizer, if it takes as many steps; by plain steps the decay alone moves them.
Each weight, taken for one of these, gives an m; of those that are, it is the same whole number, of others any.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.structure import Training
from fglaudit.view import View

_MOVED = 1e-3
"""Share of the largest, from which a weight counts as moved by others than who lacks the word."""
_WHOLE = 0.02
_MOST = 10**5
"""Training nodes of one client at most."""
_VOTES = 20
"""Weights that must agree on a number, beside three times as many as on the next one."""
_SHARP = 0.3
"""Of weights whose m rounds to that number, who must be near it: of noise 4 % are."""


def decay_alone(view: View) -> float | None:
    """Return by what share of themselves weights without a gradient change in a round; None if that is not known."""
    stated = view.public.structure.get(Training)
    if stated is None:
        return None
    if not stated.weight_decay:
        return 0.0
    known = stated.optimizer == "sgd" and stated.local_steps and not stated.momentum and not stated.proximal
    return (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps - 1 if known else None


def last_count(own: Tensor, counts: Tensor, mean: Tensor, unmoved: Tensor | None) -> int | None:
    """Return how many training nodes the other client has; None if weights do not agree on a number.

    Args:
        own: changes [c, D] of the observer's clients in a round, who have ``counts`` [c] training nodes.
        mean: change [D] of the weighted mean of theirs and the other one's.
        unmoved: change [D] of weights without a gradient, where it is known.
    """
    rest = counts @ own - counts.sum() * mean
    votes, about = torch.zeros(2, _MOST, dtype=torch.long)
    for without in (*own, *([] if unmoved is None else [unmoved])):
        away = mean - without
        moved = away.abs() > _MOVED * away.abs().max()
        found = rest[moved] / away[moved]
        found = found[(found > 0.5) & (found < _MOST - 1)]
        about += torch.bincount(found.round().long(), minlength=_MOST)
        votes += torch.bincount(found[(found - found.round()).abs() < _WHOLE].round().long(), minlength=_MOST)
    most, order = votes.topk(2)
    sure = int(most[0]) >= max(_VOTES, 3 * int(most[1]), _SHARP * int(about[order[0]]))
    return int(order[0]) if sure else None
