"""What attacks on FedGAT's messages answer alike in ``Attack.models``: predicates of one fact."""

from __future__ import annotations

from fglaudit.adversary.modelled import about, dropped_edges, known_noise, noisy_rows, row_clip, training_changed
from fglaudit.facts import (
    ROWS,
    Absent,
    Additive,
    Clipped,
    Fact,
    Field,
    KeptColumns,
    Memoised,
    Rounded,
    Sampled,
    Scaled,
    Sealed,
)
from fglaudit.payloads import Embeddings, ModelUpdate, Payload, RawFeatures

GAUSSIAN = ("gaussian",)
"""The noise that levels of rows are decided under, see ``row_levels``."""
_OF_MESSAGES = (Additive, Clipped, Rounded, Scaled, Sampled, Memoised, Sealed, Absent)
_OPENED = 1e-5
"""Largest error of an opened entry that counts as rounding: a tenth of what attacks take entries to be exact to."""
_FLOODING = 12.0
"""Standard deviations of flooding noise that no entry exceeds."""


def changed_rows(fact: Fact) -> bool:
    """Whether rows were clipped, each on its own, or lost columns, as ``row_levels`` allows for."""
    return row_clip(fact) or (type(fact) is KeptColumns and fact.target == ROWS)


def sealed_finely(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether messages of ``payloads`` are sealed, and as they were, up to rounding, once they are opened."""
    if type(fact) is not Sealed or not about(fact, *payloads):
        return False
    return fact.rounding + _FLOODING * fact.flooding <= _OPENED


def received_models(fact: Fact) -> bool:
    """Whether it leaves the models that the server sends as they are: an observer reads those alone."""
    if not about(fact, ModelUpdate):
        return False
    up = isinstance(fact.target, Field) and fact.target.direction == "up"
    return (type(fact) in _OF_MESSAGES and up) or type(fact) is Absent or sealed_finely(fact, ModelUpdate)


def evidence_alone(fact: Fact) -> bool:
    """Whether it concerns messages that only help to assign rows to nodes, see ``embedding_assignment``: of models and
    embeddings that were changed nothing is used."""
    return type(fact) in _OF_MESSAGES and (about(fact, Embeddings) or about(fact, ModelUpdate))


def allowed_in_assignment(fact: Fact) -> bool:
    """Whether ``row_assignment`` allows for it: for rows that were changed before anything was computed from them, for
    neighbourhoods that lost edges, and for noise on rows on their way to the server, which then scales them."""
    return (
        noisy_rows(fact)
        or changed_rows(fact)
        or dropped_edges(fact)
        or training_changed(fact)
        or evidence_alone(fact)
        or sealed_finely(fact, RawFeatures)
        or known_noise(fact, RawFeatures, distributions=GAUSSIAN)
    )
