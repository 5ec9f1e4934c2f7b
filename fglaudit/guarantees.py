"""What is said of a privacy guarantee, and on what grounds: plain data (rule 12).

An author's number is *claimed*. It is *verified* where this tool accounted it from facts and counted releases, for a
named unit and relation, and no audit with the power to see a break saw one; *refuted* where an audit, a count or
planted rows contradict it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

NOT_REPLAYED = "not replayed, as asked"
"""Why an audit did not run: the user asked for a short one."""
REFUTED_AT = 1e-5
"""Probability, per audit, that an honest defense is refuted."""


BAND = 0.99
"""Probability that the band around a measured curve holds the whole true curve."""


RELATIONS = ("replaced", "zeroed out", "added or removed")
"""What can happen to one record between neighbouring data sets: the words of ``privacy.accounting.Relation``."""


MEANINGFUL = 10.0
"""Above this an epsilon allows odds to change by a factor of more than 22 000: no ground to speak of an assurance."""


def empty(epsilon: float, delta: float, nodes: int) -> str:
    """Return why a guarantee that holds protects nobody, or nothing: its epsilon bounds nothing, or its delta is one
    over the number of ``nodes`` (0: not known) or more, which a mechanism meets that publishes one record at random."""
    if epsilon > MEANINGFUL:
        return f"an epsilon above {MEANINGFUL:g} bounds nothing of practical use"
    if delta * max(nodes, 1) >= 1:
        return f"a delta of {delta:g} with {nodes} nodes allows for publishing one of them at random"
    return ""


UNSTATED_CHANGE = "Unstated: done to it is something that is not stated"
"""The reason of a field to which a defense does what no fact explains."""


class Word(StrEnum):
    """The column ``guarantee`` of ``findings.csv``."""

    VERIFIED = "verified"
    CLAIMED = "claimed"
    REFUTED = "refuted"
    NONE = "none"  # nothing is promised to this observer


def exceeded(shown: float | None, accounted: float | None) -> str:
    """Return how an epsilon that replays showed contradicts the accounted one; empty where it does not."""
    if shown is None or accounted is None or shown <= accounted:
        return ""
    return f"replays show an epsilon of at least {shown:.3g}, above the {accounted:.3g} that is accounted"


class AuditName(StrEnum):
    """What an audit looks at, as records and reports name it."""

    FACTS = "facts"
    RELEASES = "releases"
    EPSILON = "epsilon"
    FOREIGN_RANDOMNESS = "foreign randomness"
    FIELDS = "fields"
    SENSITIVITY = "sensitivity"
    CLIP = "clip"
    NOISE = "noise"
    DEPENDENCE = "dependence"
    REPORTS = "reports"
    SAMPLING = "sampling"
    SHARES = "shares"
    TRADE_OFF = "trade-off"
    REACH = "reach"
    DISTINGUISHER = "distinguisher"
    PLANTED_ROWS = "planted rows"
    REPLAYS = "replays"  # of an audit that raised: whatever it looks at, it could not be run
    WHOLE_TRAINING = "whole training"
    LABEL_RESPONSES = "label responses"
    SEALED = "sealed"
    FRESH_CIPHERTEXTS = "fresh ciphertexts"
    BESIDE_CIPHERTEXTS = "beside ciphertexts"
    KEY_MATERIAL = "key material"
    MASKS = "masks"
    COALITIONS = "coalitions"
    PROTOCOL = "protocol"  # does it keep the rules
    CODE = "code"  # does a plugin look for what tells an audit from a run


class Outcome(StrEnum):
    PASSED = "passed"
    REFUTED = "refuted"
    UNTESTED = "untested"  # could not be run, or without the power to see a break


@dataclass(frozen=True)
class MeasuredCurve:
    """The trade-off curve that replays measured, beside the one that is stated; rates are fractions.

    White box, all releases of all rounds, neighbours of the auditor's choice (worst cases, not natural rows).

    Attributes:
        canary: what was put in, in words: of all canaries the one that shows the largest epsilon.
        epsilon: lower bound on epsilon at the guarantee's delta; wrong with probability ``REFUTED_AT``.
        ceiling: the largest bound that as many replays can show.
        replays: with the record, and as many without.
        alarms, hits: rates of false alarms and of hits of the best guess, at falling thresholds [n].
        margin: half the width of the band around either rate, simultaneous at ``BAND``.
        stated_alarms, stated_hits: points [m] of the stated curve, which no guess may be above; where samples are
            drawn, of the noise alone.
    """

    canary: str
    epsilon: float
    ceiling: float
    replays: int
    alarms: tuple[float, ...]
    hits: tuple[float, ...]
    margin: float
    stated_alarms: tuple[float, ...]
    stated_hits: tuple[float, ...]


@dataclass(frozen=True)
class Audit:
    """One attempt to refute a guarantee.

    Attributes:
        name: what it looks at.
        outcome: what came of it.
        detail: in words, with the numbers: what was seen, beside what was stated.
        p_value: probability of what was seen if the guarantee holds; None for audits that count or compare.
        power: probability that noise too small by a factor 1.5 would have been seen; None where that is not what it
            looks for.
        largest_epsilon: above this the audit cannot refute anything, as many replays as it had; None where it does not
            apply.
        measured: the curve that was measured; None for audits that measure none.
    """

    name: AuditName
    outcome: Outcome
    detail: str
    p_value: float | None = None
    power: float | None = None
    largest_epsilon: float | None = None
    measured: MeasuredCurve | None = None


class Protection(StrEnum):
    """The column ``state`` of ``guarantees.csv``: of one field, or of all that an observer sees (sealed and the last
    three)."""

    COVERED = "covered"  # by a stated mechanism
    SEALED = "sealed"
    ATTACKED = "attacked"  # an adapted, self-tested attack read it
    UNEXAMINED = "unexamined"
    NOTHING = "nothing"  # moves with the data, in the clear, and nothing protects it
    STILL = "not seen to move"
    PRIVATE = "private"
    CLAIMED = "claimed"
    OPEN = "open"


@dataclass(frozen=True)
class FieldState:
    """What protects one field of a payload from one observer: a row of ``guarantees.csv``.

    Attributes:
        observer: e.g. "server"; empty for every observer.
        payload: e.g. "NeighborSums"; ``field`` is one of its fields, or a property of the messages ("presence").
        state: what was found out about it.
        reason: in words.
        seal: what is said of its sealing; none where it does not travel sealed. In the record, not in the table.
        unstated: whether something is done to it that no fact states. In the record, not in the table.
        others: attacks that are no part of fglaudit, passed their self-test and read it: what they allow for is their
            own word, so it is unexamined all the same. In the record, not in the table.
    """

    observer: str
    payload: str
    field: str
    state: Protection
    reason: str
    seal: Word = Word.NONE
    unstated: bool = False
    others: tuple[str, ...] = ()

    @property
    def shut(self) -> bool:
        """Whether it travels sealed as the audits of ciphertexts verified; the author's word shuts nothing."""
        return self.state is Protection.SEALED and self.seal is Word.VERIFIED

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> FieldState:
        """Read it back from a record.

        Raises:
            ValueError: the state is none of :class:`Protection`, or the seal none of :class:`Word`.
        """
        words = {"state": Protection(data["state"]), "seal": Word(data["seal"]), "others": tuple(data["others"])}
        return FieldState(**{**data, **words})

    @staticmethod
    def columns() -> tuple[str, ...]:
        """Return the columns that ``guarantees.csv`` has of it."""
        return "observer", "payload", "field", "state", "reason"


@dataclass(frozen=True)
class Verdict:
    """What this tool says of a guarantee.

    Attributes:
        word: verified, claimed, refuted or none.
        reason: why not verified, or what it was verified by; one sentence.
        epsilon: accounted by this tool; None where it could not.
        claimed: the author's epsilon.
        delta, unit, adjacency: of the guarantee.
        relation: what happens to the record between neighbouring data sets, of ``RELATIONS``; empty where the guarantee
            does not say.
        covers: payloads that the guarantee is about.
        not_covered: in a sentence, what it does not protect.
        audits: what was tried.
        mu: of the whole, where all noise is Gaussian: the releases are as far apart as two normal distributions, mu
            standard deviations from each other.
    """

    word: Word
    reason: str = ""
    epsilon: float | None = None
    claimed: float | None = None
    delta: float | None = None
    unit: str = ""
    adjacency: str = ""
    covers: tuple[str, ...] = ()
    not_covered: str = ""
    audits: tuple[Audit, ...] = ()
    mu: float | None = None
    relation: str = ""

    @property
    def measured(self) -> MeasuredCurve | None:
        """The trade-off curve that replays measured, if any did."""
        return next((audit.measured for audit in self.audits if audit.measured is not None), None)

    def unverified(self, why: str, *audits: Audit) -> Verdict:
        """Return it with ``audits`` more; what was verified is claimed, for ``why``, and any other word stays."""
        more = replace(self, audits=(*self.audits, *audits))
        return replace(more, word=Word.CLAIMED, reason=why) if self.word is Word.VERIFIED else more

    @property
    def contradicted_at(self) -> float | None:
        """The p-value of the stated trade-off curve, corrected for the number of canaries."""
        return next((audit.p_value for audit in self.audits if audit.measured is not None), None)


def verdict_from_json(stored: dict[str, Any]) -> Verdict:
    """Rebuild a verdict from ``dataclasses.asdict``.

    Raises:
        ValueError, TypeError: if it is none.
    """
    audits = tuple(_audit(audit) for audit in stored["audits"])
    return Verdict(**{**stored, "word": Word(stored["word"]), "covers": tuple(stored["covers"]), "audits": audits})


def _audit(stored: dict[str, Any]) -> Audit:
    measured = stored["measured"]
    if measured is not None:
        lists = ("alarms", "hits", "stated_alarms", "stated_hits")
        measured = MeasuredCurve(**{**measured, **{name: tuple(measured[name]) for name in lists}})
    words = {"name": AuditName(stored["name"]), "outcome": Outcome(stored["outcome"])}
    return Audit(**{**stored, **words, "measured": measured})
