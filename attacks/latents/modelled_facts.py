"""What attacks on latents answer alike in ``Attack.models``: predicates of one fact."""

from __future__ import annotations

from fglaudit.adversary.modelled import about, known_noise, message_clip, training_changed
from fglaudit.facts import (
    EDGES,
    ROWS,
    Additive,
    Clipped,
    DegreeBound,
    DroppedEdges,
    Fact,
    Field,
    KeptColumns,
    Memoised,
    Merged,
    Randomised,
    Rounded,
    Scaled,
)
from fglaudit.payloads import LatentGradients, Latents, ModelUpdate, Payload

_OF_EDGES = (DroppedEdges, DegreeBound, Merged)
_OF_ROWS = (Additive, Clipped, Randomised, KeptColumns)
_OF_MESSAGES = (Additive, Clipped, Rounded, Scaled, Memoised)


def edges_changed(fact: Fact) -> bool:
    """Whether only edges were changed: a latent is that of one user's row and weights, whatever its neighbours are."""
    return type(fact) in _OF_EDGES and fact.target == EDGES


def rows_changed(fact: Fact) -> bool:
    """Whether rows were changed before anything was computed from them."""
    return type(fact) in _OF_ROWS and fact.target == ROWS


def messages_changed(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether messages of ``payloads`` were changed each on its own, in a way that is stated."""
    return type(fact) in _OF_MESSAGES and about(fact, *payloads)


def alike_for_all(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether it is done to every user's row, edges, training or ``payloads`` alike, so that whoever learns a map from
    known users learns it too."""
    return rows_changed(fact) or edges_changed(fact) or training_changed(fact) or messages_changed(fact, *payloads)


def rounded(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether messages of ``payloads`` were rounded to levels whose distance is known, see ``clipping.added_std``."""
    grid = type(fact) is Rounded and (fact.step is not None or fact.levels is not None)
    return grid and about(fact, *payloads)


def disturbed_latents(fact: Fact) -> bool:
    """Whether latents got noise or were rounded, by an error of known size."""
    return known_noise(fact, Latents) or rounded(fact, Latents)


def clipped_latents(fact: Fact) -> bool:
    """Whether latents were clipped, each on its own."""
    return message_clip(fact, Latents)


def received_gradients(fact: Fact) -> bool:
    """Whether it is about the gradients that users receive: they are read as they arrive, and users step with them."""
    return messages_changed(fact, LatentGradients)


def after_first_models(fact: Fact) -> bool:
    """Whether it leaves the first models as they are: those that the server sends before training."""
    later = isinstance(fact.target, Field) and (fact.target.direction == "up" or fact.target.since > 0)
    return messages_changed(fact, ModelUpdate) and later
