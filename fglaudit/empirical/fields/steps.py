"""How far one record moves every release, and what it enters beyond what is stated, beside what is stated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.context import Context
from fglaudit.empirical.fields.forced_replay import Trace
from fglaudit.empirical.fields.moves import Moves, largest_step
from fglaudit.empirical.fields.one_record import changed_losses, messages_of_one
from fglaudit.empirical.replays.replaced import Replaced
from fglaudit.facts import (
    GRADIENTS,
    ROWS,
    Absent,
    Additive,
    Clipped,
    Fact,
    KeptColumns,
    Masked,
    Scaled,
    Sealed,
    before_noise,
    first,
    on,
)
from fglaudit.payloads import ModelUpdate
from fglaudit.privacy.accounted import Accounted, Noised
from fglaudit.privacy.accounting import Relation


@dataclass(frozen=True)
class Step:
    """The longest step of one release, beside what is stated.

    Attributes:
        noised: what is released.
        length: of the step, in the norm of its noise, less what may be roundoff.
        stated: how long it may be.
        what: which record was replaced.
    """

    noised: Noised
    length: float
    stated: float
    what: str

    @property
    def share(self) -> float:
        """How far it goes of what is stated."""
        return self.length / self.stated


def entered_more(
    context: Context,
    facts: Sequence[Fact],
    accounted: Accounted | str,
    one: Trace,
    other: Trace,
    same: Moves,
    pair: Replaced,
) -> str:
    """Return in words what the record of ``pair`` entered beyond what was accounted; empty if nothing was seen."""
    for noised in accounted.mechanisms if isinstance(accounted, Accounted) else ():
        if same.of(noised):
            continue
        entered = messages_of_one(context, noised, one, other)
        if entered > 1:
            return (
                f"{pair.what} moves {entered} messages of {noised.payload} of one round, and the protocol states that"
                " it enters one"
            )
        clip = first(before_noise(facts), Clipped, GRADIENTS)
        if noised.payload == "gradients" and clip is not None:
            changed, stated = changed_losses(one, other), round(noised.sensitivity / (2 * clip.bound))
            if changed > max(1, stated):
                return f"{pair.what} changes the gradients of {changed} losses of one step, {stated} are accounted"
    return ""


def side(by_server: bool) -> str:
    """Return the direction of a fact about what the server, or a client, sends."""
    return "down" if by_server else "up"


def steps_of(
    context: Context, facts: Sequence[Fact], accounted: Accounted | str, one: Trace, other: Trace, pair: Replaced
) -> list[tuple[int, Step]]:
    """Return how far every release moved, beside what is stated for such a record."""
    if not isinstance(accounted, Accounted):
        return []
    found = []
    for number, noised in enumerate(accounted.mechanisms):
        if noised.distribution not in ("gaussian", "laplace"):
            continue
        about = before_noise(on(facts, noised.payload, "", side(noised.by_server)))
        clips = [fact for fact in about if isinstance(fact, Clipped)]
        release = next((r for r in context.releases if r.payload.__name__ == noised.payload), None)
        joint = release is not None and not clips and noised.payload != ModelUpdate.__name__
        # A record that is zeroed out moves half as far as one that is replaced; whole clients always are replaced here.
        halves = not pair.zeroed or accounted.unit == "client"
        wide = accounted.relation is not Relation.REPLACE and halves and _by_relation(noised, clips, accounted)
        if (factor := after_noise(facts, noised)) is None:
            continue
        stated = noised.sensitivity * (2 if wide else 1) * factor
        length, off = largest_step(one, other, noised, joint=joint)
        found.append((number, Step(noised, max(0.0, length - off), stated, pair.what)))
    return found


def after_noise(facts: Sequence[Fact], noised: Noised) -> float | None:
    """Return by what a release is scaled after the noise; None where more is done to it than that."""
    targets = {"rows": ROWS, "gradients": GRADIENTS}
    sent = side(noised.by_server)
    own = (
        [fact for fact in facts if fact.target == targets[noised.payload]]
        if noised.payload in targets
        else list(on(facts, noised.payload, "", sent))
    )
    at = next(number for number, fact in enumerate(own) if isinstance(fact, Additive))
    factor = 1.0
    for fact in own[at + 1 :]:
        if not isinstance(fact, Scaled | Additive | Sealed | Absent | KeptColumns | Masked | Clipped):
            return None
        if isinstance(fact, Clipped) and not _shortens(fact, noised):
            return None
        factor *= abs(fact.factor) if isinstance(fact, Scaled) else 1.0
    return factor


def _shortens(clip: Clipped, noised: Noised) -> bool:
    """Whether what ``clip`` makes of two values is no further apart than they were, in the norm of the noise: it is the
    nearest value within its bound, which in L1 holds of single entries alone."""
    return clip.norm == "elementwise" or (clip.norm == "L2" and noised.distribution == "gaussian")


def _by_relation(noised: Noised, clips: Sequence[Clipped], accounted: Accounted) -> bool:
    """Whether the sensitivity is smaller for records that are zeroed out than for those that are replaced."""
    return noised.payload != "gradients" and (not clips or accounted.unit == "client")
