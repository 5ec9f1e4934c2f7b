"""What a defense makes of the bounds on what is sent, which a later one of a stack is bound to."""

from __future__ import annotations

from dataclasses import replace

from fglaudit.context import Aggregate, Context
from fglaudit.facts import ROWS, Additive, Clipped, Fact, Field, KeptColumns, Rounded
from fglaudit.interfaces import DefenseSession

REACH = {"gaussian": 9.0, "laplace": 40.0, "uniform": 1.0}
"""By distribution the multiple of its scale that no drawn number exceeds: they are made of numbers with 53 bits."""


def after(context: Context, session: DefenseSession) -> Context:
    """Return ``context`` with the bounds on what the server adds up (:class:`Aggregate`) that ``session`` leaves."""
    aggregates = dict(context.aggregates)
    for fact in session.facts():
        for payload, aggregate in aggregates.items():
            if fact.target == ROWS or (
                isinstance(fact.target, Field) and fact.target.meets(payload.__name__, "", "up")
            ):
                aggregates[payload] = _bounded(aggregate, fact)
    return replace(context, aggregates=aggregates)


def _bounded(aggregate: Aggregate, fact: Fact) -> Aggregate:
    largest = aggregate.largest
    if isinstance(fact, KeptColumns):
        return aggregate
    if isinstance(fact, Clipped | Rounded):  # absolute values do not grow
        return replace(aggregate, integers=False)
    grown = None
    if isinstance(fact, Additive) and fact.target != ROWS and largest is not None and fact.distribution in REACH:
        grown = largest + REACH[fact.distribution] * fact.scale * aggregate.summands
    return replace(aggregate, largest=grown, integers=False, signed=True)
