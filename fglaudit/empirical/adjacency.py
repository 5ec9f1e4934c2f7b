"""What neighbouring data sets are, in words: an author's own may promise more than what is accounted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fglaudit.facts import Fact, rebuilt
from fglaudit.interfaces import DefenseSession, Guarantee
from fglaudit.privacy.accounting import Relation
from fglaudit.wire.observing.foreign import is_foreign


def promise_of(session: DefenseSession) -> Guarantee:
    """Return the guarantee of ``session``; of one that was not written here with its unit, relation and labels in this
    tool's words in place of its author's, since these are what is accounted and audited."""
    promise = session.guarantee()
    if promise.relation is None or not promise.unit or not is_foreign(session):
        return promise
    return replace(promise, adjacency=_words(promise, promise.relation))


def _words(promise: Guarantee, relation: Relation) -> str:
    if promise.unit == "edge":
        return f"one edge {relation}; features and labels public"
    if relation is Relation.ADD_OR_REMOVE:
        return f"one {promise.unit} {relation}, with the edges within its client that the stated degree bound leaves"
    if promise.labels:
        return f"one {promise.unit}'s features and labels {relation}; edges public"
    return relation.of(f"one {promise.unit}'s features")


class Statements(NamedTuple):
    """What a run was compared with: a session may state something else once it is over."""

    facts: Sequence[Fact]
    promise: Guarantee

    @staticmethod
    def by(session: DefenseSession) -> Statements:
        """Return what ``session`` states now."""
        return Statements(rebuilt(session.facts()), promise_of(session))
