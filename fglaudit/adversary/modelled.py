"""What several attacks answer alike in ``Attack.models``: predicates of one fact, all false of unknown kinds."""

from __future__ import annotations

from fglaudit.facts import EDGES, ROWS, Additive, Clipped, DegreeBound, DroppedEdges, Fact, Field, Sealed
from fglaudit.payloads import Payload

KNOWN_NOISE = ("gaussian", "laplace")
"""Distributions of noise that attacks know by more than their standard deviation."""


def about(fact: Fact, payload: type[Payload], field: str = "", direction: str | None = None) -> bool:
    """Whether ``fact`` is about a field of ``payload``; an empty ``field`` is any, no ``direction`` is both."""
    return isinstance(fact.target, Field) and fact.target.meets(payload.__name__, field, direction)


def known_noise(fact: Fact, *payloads: type[Payload], distributions: tuple[str, ...] = KNOWN_NOISE) -> bool:
    """Whether it is noise of these ``distributions`` on messages of ``payloads``."""
    return isinstance(fact, Additive) and fact.distribution in distributions and any(about(fact, p) for p in payloads)


def message_clip(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether it is a clip of whole messages of ``payloads`` around zero, entry by entry or by their norm."""
    plain = isinstance(fact, Clipped) and fact.per == "message" and fact.around == "zero"
    return plain and any(about(fact, p) for p in payloads)


def row_clip(fact: Fact) -> bool:
    """Whether rows are scaled down to a norm before they are used, each on its own."""
    return isinstance(fact, Clipped) and fact.target == ROWS and fact.per == "row" and fact.norm in ("L1", "L2")


def sealed(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether messages of ``payloads`` travel sealed. What an observer cannot open is not in its view; what it can open
    has the errors that the fact states."""
    return isinstance(fact, Sealed) and any(about(fact, p) for p in payloads)


def dropped_edges(fact: Fact) -> bool:
    """Whether nodes with few cross-client neighbours lost them, see ``public_rules.fewest_neighbors``."""
    return isinstance(fact, DroppedEdges) and fact.target == EDGES


def degree_bound(fact: Fact) -> bool:
    """Whether edges are dropped down to a degree, which ``public_rules.own_graphs`` repeats."""
    return isinstance(fact, DegreeBound) and fact.target == EDGES
