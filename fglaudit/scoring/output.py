"""What one attack by one observer came to, before anybody who knows the truth has looked at it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fglaudit.finding import Finding, Status
from fglaudit.interfaces import Attack
from fglaudit.quantities import Result
from fglaudit.view import View


@dataclass(frozen=True)
class Output:
    """Results of one attack, one per member of an observer (one, or every client in turn).

    Attributes:
        blank: the finding's identity and what training came to, with the status: `failed` and `not-applicable` carry
            the reason and no results.
        pooled: whether the members are one client each, in turn.
        views: what the attack was given.
        results: one per view.
        flaw: what its self-test on a planted plain leak showed to be wrong, or None.
        on_noise: results on messages of noise in the shapes of the tested view's, one per draw; run when they are asked
            for, since the scorer stops at the first that passes. None: not tested, and not to be reported.
        tested: index of the view that self-tests use.
        read: fields of messages that it read, as (payload, field).
    """

    blank: Finding
    attack: Attack
    pooled: bool
    views: tuple[View, ...] = ()
    results: tuple[Result, ...] = ()
    flaw: str | None = None
    on_noise: Iterable[Result] | None = ()
    tested: int = 0
    read: frozenset[tuple[str, str]] = frozenset()

    @property
    def measured(self) -> bool:
        """Whether there are results to score."""
        return self.blank.status is Status.OK
