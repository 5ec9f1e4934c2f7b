"""What is said of a privacy guarantee, and on what grounds: plain data (design, rule 12).

An author's number is *claimed*. It is *verified* where this tool accounted it from facts and counted releases, for a
named unit and relation, and no audit with the power to see a break saw one; *refuted* where an audit, a count or
planted rows contradict it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

REFUTED_AT = 1e-5
"""Probability, per audit, that an honest defense is refuted."""


class Word(StrEnum):
    """The column ``guarantee`` of ``findings.csv``."""

    VERIFIED = "verified"
    CLAIMED = "claimed"
    REFUTED = "refuted"
    NONE = "none"  # nothing is promised to this observer


class Outcome(StrEnum):
    PASSED = "passed"
    REFUTED = "refuted"
    UNTESTED = "untested"  # could not be run, or without the power to see a break


@dataclass(frozen=True)
class Audit:
    """One attempt to refute a guarantee.

    Attributes:
        name: e.g. "sensitivity", "trade-off", "releases", "dependence", "foreign randomness", "planted rows".
        outcome: what came of it.
        detail: in words, with the numbers: what was seen, beside what was stated.
        p_value: probability of what was seen if the guarantee holds; None for audits that count or compare.
        power: probability that noise too small by a factor 1.5 would have been seen; None where that is not what it
            looks for.
        largest_epsilon: above this the audit cannot refute anything, as many replays as it had; None where it does not
            apply.
    """

    name: str
    outcome: Outcome
    detail: str
    p_value: float | None = None
    power: float | None = None
    largest_epsilon: float | None = None


@dataclass(frozen=True)
class FieldState:
    """What protects one field of a payload from one observer: a row of ``guarantees.csv``.

    Attributes:
        observer: e.g. "server"; empty for every observer.
        payload: e.g. "NeighborSums"; ``field`` is one of its fields, or a property of the messages ("presence").
        state: "covered" (by a stated mechanism), "sealed", "attacked" (an adapted, self-tested attack read it),
            "public" (not made from private features), "unexamined", "nothing" (moves with the data, in the clear, and
            nothing protects it) or "not seen to move".
        reason: in words.
    """

    observer: str
    payload: str
    field: str
    state: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What this tool says of a guarantee.

    Attributes:
        word: verified, claimed, refuted or none.
        reason: why not verified, or what it was verified by; one sentence.
        epsilon: accounted by this tool; None where it could not.
        claimed: the author's epsilon.
        delta, unit, adjacency: of the guarantee.
        covers: payloads that the guarantee is about.
        not_covered: in a sentence, what it does not protect.
        audits: what was tried.
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


def verdict_from_json(stored: dict[str, Any]) -> Verdict:
    """Rebuild a verdict from ``dataclasses.asdict``.

    Raises:
        ValueError, TypeError: if it is none.
    """
    audits = tuple(Audit(**{**audit, "outcome": Outcome(audit["outcome"])}) for audit in stored["audits"])
    return Verdict(**{**stored, "word": Word(stored["word"]), "covers": tuple(stored["covers"]), "audits": audits})
