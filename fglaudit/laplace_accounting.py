"""Epsilon of clipped vectors with Laplace noise on every coordinate, composed over coordinates and rounds.

A release of n coordinates with Laplace noise of scale lambda is ``Delta / lambda``-differentially private, Delta being the largest L1
distance of two possible vectors: ``2 delta n`` where every coordinate is clipped to [-delta, delta], ``2 delta`` where the whole vector
is scaled down to L1 norm delta. T releases add up. The formula ``2 delta / lambda`` of FedGT (section 4.3) is thus that of one
coordinate of one round under the elementwise clip, and of one whole round only under the L1 clip.

The unit is everything one client holds, replaced by anything else: a clip bounds no smaller unit any better, since one node may
move every coordinate to the other end.
"""

from __future__ import annotations

import math

import dp_accounting
from dp_accounting import rdp

from fglaudit.errors import FglauditError


def claimed_epsilon(clip: float, scale: float) -> float:
    """Return ``2 delta / lambda``, the budget that FedGT states."""
    return 2 * clip / scale


def laplace_epsilon(
    clip: float, scale: float, coordinates: int, releases: int, *, elementwise: bool, delta: float = 0.0
) -> float:
    """Return the epsilon of ``releases`` vectors of ``coordinates`` numbers each.

    Args:
        clip: of every coordinate if ``elementwise``, else of the L1 norm.
        scale: lambda of the noise.
        delta: 0 asks for pure differential privacy; above 0, the smaller of the pure bound and the one by Renyi divergences.

    Raises:
        FglauditError: unless clip and scale are positive, the counts at least 1 and delta in [0, 1).
    """
    if not (clip > 0 and scale > 0 and math.isfinite(clip) and math.isfinite(scale)):
        raise FglauditError(
            f"clip and noise scale must be positive and finite; got {clip:g} and {scale:g}; raise the one at fault"
        )
    if coordinates < 1 or releases < 1 or not 0 <= delta < 1:
        raise FglauditError(
            f"an accountant needs coordinates >= 1, releases >= 1 and delta in [0, 1); got {coordinates}, {releases}, {delta:g}"
        )
    per_event = claimed_epsilon(clip, scale)
    events = releases * coordinates if elementwise else releases
    pure = per_event * events
    if delta == 0:
        return pure
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(1 / per_event), events)
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    return min(pure, float(accountant.compose(event).get_epsilon(delta)))
