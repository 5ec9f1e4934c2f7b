"""A neighbour of a session, living through the same run with other rows: what both make of one message must be equal.

Noise that is right in every other respect may say what a session remembers: of rows that it prepared, or of earlier
values that noise has hidden. So a copy of it is prepared with other rows, and given other values wherever noise is
stated; all else, the draws too, is as in the run. Then both get the same message and the same draws: what leaves them
must be equal to the last bit, or the difference is memory. Sessions that state that they draw once for each value
(``Memoised``) are compared when they draw first: later ones remember what they drew.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from fglaudit.facts import ROWS, Memoised, Target
from fglaudit.interfaces import DefenseSession
from fglaudit.wire.observing.stated import Hook, Stated, Values

_WHY = "what leaves says something of other rows or values, which the session remembers: with others the same message\
 leaves otherwise"
_UNKNOWN = "its session cannot be followed with other rows"


class NeighboringSession:
    """The neighbour of one session.

    Attributes:
        session: what it is now; None: it could not follow the run.
        refused: whether that is because it raised an error where the session did not.
    """

    refused = False

    def __init__(self, session: DefenseSession | None) -> None:
        self.session = session

    @staticmethod
    def of(session: DefenseSession) -> NeighboringSession:
        """Return the neighbour of a session that nothing was asked of yet."""
        try:
            return NeighboringSession(copy.deepcopy(session))
        except Exception:  # whatever a session holds
            return NeighboringSession(None)

    def lost(self) -> None:
        """Say that it did not follow."""
        self.session = None

    def copied(self, other: DefenseSession) -> DefenseSession:
        """Return a copy of it; where it did not follow, of the session itself, which shows no memory."""
        return copy.deepcopy(other if self.session is None else self.session)

    def beside(
        self,
        hook: Hook,
        given: Values,
        kept: Values,
        left: Values,
        stated: Sequence[Stated],
        rng: torch.Generator,
    ) -> dict[Target, str]:
        """Follow a call that draws nothing: with other rows, or the same values; return what leaves otherwise.

        Args:
            given: what the session was called on, in the same memory, since sums round otherwise in another one.
            kept: ``given`` before it was called.
        """
        if self.session is None:
            return {}
        rows = any(about.target == ROWS for about in stated)
        values = {name: _moved(v) if rows else _unedited(given[name], v) for name, v in kept.items()}
        try:
            _, again = hook(self.session, values, rng)
        except Exception:  # it may refuse other rows
            self.lost()
            self.refused = True
            return {}
        return {} if rows else self.compared(stated, left, again)

    def overhead(self, counted: tuple[Tensor, Tensor]) -> str | None:
        """Return why the bytes [K] that the session ``counted`` beside its messages say something, or None."""
        if self.session is None:
            return f"bytes beside messages of which it is not known what they say: {_UNKNOWN}"
        again = self.session.overhead()
        same = again is not None and all(torch.equal(one, other) for one, other in zip(counted, again, strict=True))
        return None if same else "bytes beside messages that are others where rows or values are others"

    def compared(
        self, stated: Sequence[Stated], left: Values, again: Values, drawn: Collection[Target] = ()
    ) -> dict[Target, str]:
        """Return of which targets the neighbour made something else of the same; ``drawn``: those drawn for before."""
        found = {}
        for about in stated:
            one, other = left.get(about.name), again.get(about.name)
            kept = about.target in drawn and any(isinstance(fact, Memoised) for fact in about.facts)
            if one is None or kept:
                continue
            if other is None or not same_bits(one, other):
                found[about.target] = _WHY
        return found


def _unedited(given: Tensor, kept: Tensor) -> Tensor:
    return given if same_bits(given, kept) else kept


def _moved(rows: Tensor) -> Tensor:
    """Return numbers of ``rows`` in other places, half of them twice and the others not at all: sums of rows are other
    ones too."""
    flat = rows.flatten()
    half = len(flat) // 2
    moved = flat.flip(0).roll(len(flat) // 3)
    return torch.cat([moved[: len(flat) - half], moved[:half]]).view(rows.shape)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether both have the same numbers, to the last bit and the sign of a zero."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    alike = (one == other) & (one.signbit() == other.signbit())
    return bool((alike | (one.isnan() & other.isnan())).all())
