"""What an epsilon for one neighbouring relation is worth for another.

An epsilon is about data sets that differ in one record: replaced by any other, zeroed out, or added or removed. To
replace a record is to zero it out, or remove it, and to do the reverse with the other one: two steps, over which an
epsilon doubles and its delta grows by a factor of ``1 + exp(epsilon)`` (group privacy). Where all noise is Gaussian
mu doubles, at the same delta. What holds for any replacement holds for zeros too; that the record is there at all is
hidden by "added or removed" alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fglaudit.privacy.accounting import Relation
from fglaudit.privacy.tradeoff import TradeOff

ANY = "any"
_STEPS = {
    (Relation.REPLACE, Relation.REPLACE): 1,
    (Relation.REPLACE, Relation.ZERO_OUT): 2,
    (Relation.REPLACE, Relation.ADD_OR_REMOVE): 2,
    (Relation.ZERO_OUT, Relation.REPLACE): 1,
    (Relation.ZERO_OUT, Relation.ZERO_OUT): 1,
    (Relation.ZERO_OUT, Relation.ADD_OR_REMOVE): 2,
    (Relation.ADD_OR_REMOVE, Relation.ADD_OR_REMOVE): 1,
}
"""By the relation that is asked for and that of a guarantee: how many of its steps are one that is asked for. What is
not here follows from no number of them."""

_OVERFLOWS = 700.0
"""The largest epsilon, about, whose exponential is a number."""


@dataclass(frozen=True)
class Worth:
    """What a guarantee is worth for the relation that is asked for.

    Attributes:
        epsilon, delta: at this relation.
        note: how they follow, in words; empty where they are those that were stated.
        trouble: why nothing follows; empty otherwise.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    note: str = ""
    trouble: str = ""


def worth(epsilon: float, delta: float, mu: float | None, relation: str, asked: str) -> Worth:
    """Return what ``epsilon`` at ``delta`` for ``relation`` is worth where ``asked`` is asked for.

    Args:
        mu: of all releases together, where the epsilon is that of Gaussian noise.
    """
    if asked == ANY:
        return Worth(epsilon, delta)
    fix = f"name what the policy accepts, epsilon.relation: {relation or ANY}"
    if not relation:
        return Worth(trouble=f"the guarantee does not name its neighbouring relation, wanted {asked}; {fix}")
    steps = _STEPS.get((Relation(asked), Relation(relation)))
    if steps is None:
        return Worth(trouble=f"the guarantee is about a record {relation}, and says nothing of one {asked}; {fix}")
    if steps == 1:
        return Worth(epsilon, delta)
    note = f"{epsilon:.4g} for a record {relation}, which is {{}} for one {asked}; to take it as it stands, {fix}"
    if mu is not None and 0 < delta < 1:
        twice = float(TradeOff.gaussian(steps * mu).epsilon(delta))
        return Worth(twice, delta, note.format(f"{twice:.4g}"))
    grown = delta * (1 + math.exp(epsilon)) if delta and epsilon < _OVERFLOWS else float(delta > 0)
    twice, grown = steps * epsilon, min(grown, 1.0)
    return Worth(twice, grown, note.format(f"{twice:.4g} at a delta of {grown:.2g}"))
