"""The weight of the other client in a personal average of global nodes, from the average alone (FedGT, equation (7)).

With s one over the weight, the other client's global nodes, in the receiver's order, are ``m + s (average - m)``, m the
average of those that the observer has. Their mean cosine S with the receiver's own global nodes must be the one that
the weight was made of: ``s = 1 + sum_j exp(tau S_j) / exp(tau S(s))``, one equation in one unknown.
"""

from __future__ import annotations

import torch
from torch import Tensor

_TRIED = 400
_HALVINGS = 60


def stretches(tau: float, likeness: Tensor, nodes: Tensor, own: Tensor, shown: Tensor) -> Tensor:
    """Return all s that fit [r], ascending: one over the weight of a single other client in ``shown``.

    Args:
        tau: sharpness of the weights.
        likeness: mean cosines of the receiver with the clients that the observer has, itself among them [c].
        nodes: the receiver's global nodes [g, d], double precision as all that follows.
        own: average of the observer's global nodes by their weights [g, d].
        shown: average of all that the receiver was sent [g, d].
    """
    unit, away = torch.nn.functional.normalize(nodes, dim=1), shown - own

    def excess(stretch: Tensor) -> Tensor:
        other = own + stretch[:, None, None] * away
        cosine = (torch.nn.functional.normalize(other, dim=2) * unit).sum(2).mean(1)
        return ((tau * likeness).logsumexp(0) - tau * cosine) - (stretch - 1).log()

    total = (tau * likeness).logsumexp(0)
    grid = 1 + torch.linspace(float(total) - tau - 1e-6, float(total) + tau + 1e-6, _TRIED, dtype=torch.double).exp()
    above = excess(grid) > 0
    place = (above[1:] != above[:-1]).nonzero().squeeze(1)
    low, high, side = grid[place], grid[place + 1], above[place]
    for _ in range(_HALVINGS if len(place) else 0):
        middle = (low + high) / 2
        same = (excess(middle) > 0) == side
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    return (low + high) / 2
