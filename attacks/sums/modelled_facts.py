"""Which facts the equations of :mod:`fglaudit.attacks.sums.equations.neighbor_equations` allow for."""

from __future__ import annotations

from fglaudit.adversary.modelled import (
    about,
    fewer_edges,
    kept_columns,
    known_noise,
    on_gradients,
    random_rows,
    row_clip,
    sealed,
)
from fglaudit.facts import Absent, Fact, Rounded
from fglaudit.payloads import NeighborSums


def in_terms(fact: Fact) -> bool:
    """Whether equations allow for a fact about edges or senders: which terms a sum has. Gradients are no terms."""
    gone = isinstance(fact, Absent) and about(fact, NeighborSums) and fact.share == 0  # the same ones in all sums
    return fewer_edges(fact) or gone or on_gradients(fact)


def in_errors(fact: Fact) -> bool:
    """Whether ``fact`` adds an error to sums whose standard deviation is known: noise, or a grid."""
    return known_noise(fact, NeighborSums) or (isinstance(fact, Rounded) and about(fact, NeighborSums, field="sums"))


def in_values(fact: Fact) -> bool:
    """Whether equations allow for a fact about rows or about the errors of sums, noise on sums excepted.

    Known rows are subtracted as they were used, the errors of sealing count as rounding, and what a clip leaves of a
    row's entries is searched for as their level; random rows are rebuilt as reports.
    """
    return sealed(fact, NeighborSums) or row_clip(fact) or kept_columns(fact) or random_rows(fact)
