"""What several attacks answer alike in ``Attack.models``: predicates of one fact, all false of unknown kinds."""

from __future__ import annotations

from collections.abc import Sequence

from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    MULTI_BIT,
    ROWS,
    Additive,
    Clipped,
    DegreeBound,
    DroppedEdges,
    Fact,
    Field,
    KeptColumns,
    Randomised,
    Rounded,
    Sampled,
    Scaled,
    Sealed,
    is_built_in,
)
from fglaudit.facts.lookup import overlap
from fglaudit.payloads import Payload

KNOWN_NOISE = ("gaussian", "laplace")
"""Distributions of noise that attacks know by more than their standard deviation."""
_OF_GRADIENTS = (Additive, Clipped, Sampled, Scaled)


def about(fact: Fact, *payloads: type[Payload], field: str = "", direction: str | None = None) -> bool:
    """Whether ``fact`` is about a field of one of ``payloads``; an empty ``field`` is any, no ``direction`` is both."""
    target = fact.target
    return isinstance(target, Field) and any(target.meets(p.__name__, field, direction) for p in payloads)


def known_noise(fact: Fact, *payloads: type[Payload], distributions: tuple[str, ...] = KNOWN_NOISE) -> bool:
    """Whether it is noise of these ``distributions`` on messages of ``payloads``."""
    return type(fact) is Additive and fact.distribution in distributions and about(fact, *payloads)


def known_error(fact: Fact, payload: type[Payload]) -> bool:
    """Whether it adds an error of known variance to messages of ``payload``: noise, or rounding to levels."""
    return known_noise(fact, payload) or (isinstance(fact, Rounded) and about(fact, payload))


def message_clip(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether it is a clip of whole messages of ``payloads`` around zero, entry by entry or by their norm."""
    plain = type(fact) is Clipped and fact.per == "message" and fact.around == "zero"
    return plain and about(fact, *payloads)


def fresh_error(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether it adds an error with mean about 0 to messages of ``payloads``, afresh in each: noise, or a grid."""
    return type(fact) in (Additive, Rounded) and about(fact, *payloads)


def change_clip(fact: Fact, payload: type[Payload]) -> bool:
    """Whether whole uploads are clipped, around zero or what was received; whether that is a clip of the changes
    depends on what is uploaded, see ``uploads.unknown_changes``."""
    return type(fact) is Clipped and fact.per == "message" and about(fact, payload, direction="up")


def row_clip(fact: Fact) -> bool:
    """Whether rows are scaled down to a norm before they are used, each on its own."""
    return type(fact) is Clipped and fact.target == ROWS and fact.per == "row" and fact.norm in ("L1", "L2")


def kept_columns(fact: Fact) -> bool:
    """Whether all rows are zero outside public columns."""
    return type(fact) is KeptColumns and fact.target == ROWS


def decides(fact: Fact) -> bool:
    """Whether a fact by which random reports are made of rows is allowed for where the rows behind them are decided,
    see :mod:`fglaudit.adversary.local_reports`."""
    if fact.target != ROWS:
        return False
    known_bits = type(fact) is Randomised and fact.kind == MULTI_BIT
    noise = type(fact) is Additive and fact.distribution in KNOWN_NOISE
    return known_bits or noise or row_clip(fact) or kept_columns(fact)


def sealed(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether messages of ``payloads`` travel sealed. What an observer cannot open is not in its view; what it can open
    has the errors that the fact states."""
    return type(fact) is Sealed and about(fact, *payloads)


def dropped_edges(fact: Fact) -> bool:
    """Whether nodes with few cross-client neighbours lost them, see ``public_rules.fewest_neighbors``."""
    return type(fact) is DroppedEdges and fact.target == EDGES


def fewer_edges(fact: Fact) -> bool:
    """Whether edges are dropped, as in :func:`dropped_edges` or down to a degree (``public_rules.own_graphs``)."""
    return dropped_edges(fact) or (type(fact) is DegreeBound and fact.target == EDGES)


def on_gradients(fact: Fact) -> bool:
    """Whether it is a built-in fact about gradients: nothing that is computed from rows alone depends on them."""
    return fact.target == GRADIENTS and is_built_in(fact)


def noisy_rows(fact: Fact) -> bool:
    """Whether rows are random reports, decided or not: for attacks that read rows of any values. See
    :func:`random_rows`."""
    return type(fact) in (Additive, Randomised) and fact.target == ROWS


def training_changed(fact: Fact) -> bool:
    """Whether gradients were clipped, scaled, sampled or got noise: neither first messages depend on that, nor models
    that are read as they arrive."""
    return type(fact) in _OF_GRADIENTS and fact.target == GRADIENTS


def random_rows(fact: Fact) -> bool:
    """Whether rows were made random in a way that :mod:`fglaudit.adversary.local_reports` decides: for attacks on
    payloads for which rows may as well be dense real-valued reports."""
    return noisy_rows(fact) and decides(fact)


def out_of_order(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the facts whose place among the others no attack reckons with, whatever it says of each alone.

    Attacks read one clip and one grid of a target, and that the clip came before noise and grid. Noises are added up.
    """
    return tuple(
        fact
        for index, fact in enumerate(facts)
        if any(overlap(fact.target, other.target) and _not_after(fact, other) for other in facts[:index])
    )


def late(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the facts about payloads that begin only in the second round of training or later: no attack reckons with
    messages before that of which they are not true."""
    return tuple(fact for fact in facts if isinstance(fact.target, Field) and fact.target.since > 1)


def _not_after(fact: Fact, other: Fact) -> bool:
    """Whether ``fact`` is not expected to come after ``other`` on one target."""
    if isinstance(fact, Clipped):
        return isinstance(other, Additive | Rounded | Randomised | Clipped)
    return isinstance(fact, Rounded) and isinstance(other, Rounded)
