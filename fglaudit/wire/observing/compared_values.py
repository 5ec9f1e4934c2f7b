"""Values that entered a defense's hook beside those that left it, compared with what its facts make of them.

All values are compared, in parts of ``_PART`` at a time. What is too small to show anything is compared once more
together, when enough of it has come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch
from torch import Tensor

from fglaudit.facts import (
    Additive,
    Clipped,
    Correlated,
    Fact,
    Field,
    KeptColumns,
    Masked,
    Memoised,
    Randomised,
    Rounded,
    Sampled,
    Target,
)
from fglaudit.facts.explaining import Expected, unexplained
from fglaudit.facts.residuals import Spending

_PART = 2**22
_POOLED = 2**15
"""Small comparisons, of few rows or rounds, are made once more together, when so many values have come together."""


class ComparedValues:
    """Compares during one run.

    Attributes:
        found: what no fact explains, by target; others may add to it. A target is compared until something is found.
    """

    def __init__(self) -> None:
        self.found: dict[Target, str] = {}
        self._spending = Spending()
        self._pools: dict[tuple[Target, int, tuple[Fact, ...]], list[tuple[Tensor, Tensor, Tensor | None]]] = {}

    def note(self, target: Target, why: str) -> None:
        """Keep the first thing that is found of ``target``."""
        self.found.setdefault(target, why)

    def finish(self) -> None:
        """Compare what still waits for more."""
        for key in list(self._pools):
            self._flush(key)

    def compare(
        self,
        target: Target,
        facts: Iterable[Fact],
        before: Tensor,
        after: Tensor,
        received: Tensor | None,
        round: int,
        slack: Tensor | None = None,
    ) -> None:
        """Compare ``before`` [R, ...] with ``after``, of the same shape, that left in ``round``.

        Args:
            received: what senders had been sent before, where their changes to it are clipped.
            slack: what rounding may make of every value, beyond that of the values themselves.
        """
        if target in self.found or before.numel() == 0:
            return
        facts, step = tuple(facts), max(1, _PART * len(before) // before.numel())
        whole = any(isinstance(fact, Masked | Correlated | Sampled) for fact in facts)
        step = len(before) if whole else step
        for low in range(0, len(before), step):
            part = slice(low, low + step)
            expected = Expected.of(before[part], None if received is None else received[part], round)
            if slack is None:
                expected = expected.to_the_last_bit()
            else:
                expected = dataclasses.replace(expected, slack=expected.slack + slack[part])
            expected = applied(expected, facts)
            if (why := unexplained(expected, after[part], self._spending, (target, low))) is not None:
                self.note(target, f"round {round}: {why}")
                return
        random = any(isinstance(fact, Additive | Randomised | Rounded) for fact in facts)
        random = random and not any(isinstance(fact, Memoised) for fact in facts)  # whose noise is used twice
        if random and not whole and slack is None and before.numel() < _POOLED:
            self._pool(target, facts, before, after, received)

    def _pool(
        self, target: Target, facts: tuple[Fact, ...], before: Tensor, after: Tensor, received: Tensor | None
    ) -> None:
        flat = [None if t is None else t.reshape(len(before), -1).clone() for t in (before, after, received)]
        entered, left, start = flat
        assert entered is not None and left is not None
        width = before.shape[-1] if any(_by_row(fact) for fact in facts) else 0
        if width and before.dim() > 2:
            return  # rows within messages; those have many values
        key = (target, entered.shape[1], facts)
        pool = self._pools.setdefault(key, [])
        pool.append((entered, left, start))
        if sum(part[0].numel() for part in pool) >= _POOLED:
            self._flush(key)

    def _flush(self, key: tuple[Target, int, tuple[Fact, ...]]) -> None:
        target, _, facts = key
        parts = self._pools.pop(key)
        if target in self.found or len(parts) < 2:
            return
        starts = [part[2] for part in parts if part[2] is not None]
        expected = Expected.of(
            torch.cat([part[0] for part in parts]), torch.cat(starts) if len(starts) == len(parts) else None
        )
        for fact in facts:
            expected = fact.applied(expected)
        why = unexplained(expected, torch.cat([part[1] for part in parts]), self._spending)
        if why is not None and len(starts) in (0, len(parts)):
            self.note(target, f"over {len(parts)} messages: {why}")


def applied(expected: Expected, facts: Iterable[Fact]) -> Expected:
    """Return what ``facts`` make of what was expected in a round, counted from the first that each is about."""
    round = expected.round
    for fact in facts:
        since = fact.target.since if isinstance(fact.target, Field) else 0
        expected = fact.applied(dataclasses.replace(expected, round=round - since))
    return expected


def _by_row(fact: Fact) -> bool:
    return isinstance(fact, KeptColumns) or (isinstance(fact, Clipped) and fact.per == "row")
