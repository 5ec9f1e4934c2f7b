"""Epsilon as this tool accounts it, from what a defense states as facts and what was counted on the wire.

Of a defense's guarantee only the words are used: unit, neighbouring relation, delta, whom it is about. Scales and
clips come from facts, which are compared with what the hooks really do (:mod:`fglaudit.wire.observing.observed`);
gains, numbers of losses and shares of a mean from the protocol; releases from the wire (and never fewer than the
protocol has in a training that is not stopped early, since when it stops may depend on the data).

Noise counts in three places:

* **rows**, made random before anything is computed from them: all that follows is post-processing;
* **gradients** of single losses, clipped and added up with noise: models are covered, not what leaves otherwise;
* **payloads** through which features leave (``Context.releases``). Where a message is clipped and one record enters one
  message of a release, it moves by two clips whatever is done to the record (by one where the record *is* that message,
  zeroed out). Where rows are clipped, all messages of a release move by the protocol's ``gain`` times that. A payload
  from which everything later is computed covers the training alone; otherwise all of them must have noise, and compose.

If several of these cover everything, the smallest epsilon holds. Random rows, and a payload from which everything later
is computed, cover it as to features: a guarantee that names labels too needs noise on gradients or on models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fglaudit.context import Context
from fglaudit.errors import FglauditError
from fglaudit.facts import GRADIENTS, ROWS, Additive, Fact, Field, Randomised, is_built_in
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation, compose_all, epsilon_of
from fglaudit.privacy.counted import Counted
from fglaudit.privacy.noise_on_models import noised_gradients, noised_uploads
from fglaudit.privacy.noise_on_payloads import Way, noised_release, noised_rows

if TYPE_CHECKING:
    from fglaudit.interfaces import Guarantee

_MODELS = "ModelUpdate"


def account(context: Context, facts: Sequence[Fact], guarantee: Guarantee, counted: Counted) -> Accounted | str:
    """Return the epsilon of a whole training, or why it cannot be accounted.

    Args:
        context: what the protocol states of its run.
        facts: of the defense, in order.
        guarantee: its words; no number in it is used but delta.
        counted: on the wire of this run.
    """
    relation, delta = guarantee.relation, guarantee.delta
    if relation is None or delta is None or not guarantee.unit:
        return "the guarantee names no unit, neighbouring relation and delta"
    foreign = next((fact for fact in facts if not is_built_in(fact)), None)
    if foreign is not None:
        return f"what {type(foreign).__name__}, a fact of the defense's own, does is not known to the accountant"
    try:
        ways = _ways(context, facts, guarantee, relation, counted)
        found = [_composed(way, guarantee, relation, delta) for way in ways if not isinstance(way, str)]
    except FglauditError as error:
        return str(error)
    if found:
        return min(found, key=lambda accounted: accounted.epsilon)
    return next((way for way in ways if isinstance(way, str)), "no fact states noise on what carries features")


def _ways(
    context: Context, facts: Sequence[Fact], guarantee: Guarantee, relation: Relation, counted: Counted
) -> list[list[Way] | str]:
    """Return sets of noised values of which each covers the whole training, and reasons where one does not."""
    found: list[list[Way] | str] = []
    if any(fact.target == ROWS for fact in facts) and not guarantee.labels:
        rows = noised_rows(context, facts, guarantee, relation, counted)
        found += [[rows]] if isinstance(rows, Way) else [rows] if rows else []
    parts: dict[str, Way | str] = {}
    for release in context.releases:
        if _has_noise(facts, release.payload.__name__):
            parts[release.payload.__name__] = noised_release(context, release, facts, guarantee, relation, counted)
            if release.covers_training and not guarantee.labels:
                way = parts[release.payload.__name__]
                found.append([way] if isinstance(way, Way) else way)
    stated, models = parts.get(_MODELS), None
    if not isinstance(stated, Way) and any(fact.target == GRADIENTS for fact in facts):
        models = noised_gradients(context, facts, guarantee, relation, counted)
    elif _has_noise(facts, _MODELS):
        models = noised_uploads(context, facts, guarantee, relation, counted)
    if isinstance(models, Way) and isinstance(stated, Way):
        # Both bounds hold: as a release a whole model may be turned around, of an upload the change alone moves.
        parts[_MODELS] = min(models, stated, key=lambda way: way.noised.sensitivity)
    elif models is not None and not isinstance(stated, Way):
        parts[_MODELS] = models
    if not parts:
        return found
    needed = {release.payload.__name__ for release in context.releases}
    if open_ := sorted(needed - set(parts)):
        return [*found, f"{', '.join(open_)} in the clear, so nothing bounds the whole"]
    if guarantee.labels and models is None:
        return [*found, "no noise is on gradients or models, which labels enter"]
    chosen = list(parts.values())
    reasons = [part for part in chosen if isinstance(part, str)]
    if reasons:
        return [*found, *reasons]
    return [*found, [part for part in chosen if isinstance(part, Way)]]


def _has_noise(facts: Iterable[Fact], payload: str) -> bool:
    about = [fact for fact in facts if isinstance(fact.target, Field) and fact.target.payload == payload]
    return any(isinstance(fact, Additive | Randomised) for fact in about)


def _composed(ways: list[Way], guarantee: Guarantee, relation: Relation, delta: float) -> Accounted:
    """Return the epsilon of all ``ways`` together.

    Raises:
        FglauditError: if they do not compose.
    """
    event = ways[0].event if len(ways) == 1 else compose_all([way.event for way in ways])
    special = [way for way in ways if way.epsilon is not None]
    if special and len(ways) > 1:
        raise FglauditError(
            "a random sample of losses or clients is accounted alone; got it beside other noise; take all of them"
        )
    epsilon = special[0].epsilon if special else epsilon_of(event, delta, relation)
    assert epsilon is not None
    if not epsilon >= 0:
        raise FglauditError(f"an epsilon is at least 0; got {epsilon:g} for {event}; state facts that can be")
    return Accounted(epsilon, delta, guarantee.unit, relation, event, tuple(way.noised for way in ways))
