"""What all statements have in common."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from fglaudit.errors import FglauditError
from fglaudit.payloads.base import Payload


class NotStatedError(FglauditError):
    """An attack asked for a statement that the protocol does not make."""


class NotStated(str):
    """What to say where a statement is not made, and the payloads that it is about."""

    payloads: tuple[type[Payload], ...]

    def __new__(cls, words: str, payloads: tuple[type[Payload], ...]) -> NotStated:
        made = super().__new__(cls, words)
        made.payloads = payloads
        return made


class Statement:
    """Base of all statements: frozen dataclasses of plain values."""

    payloads: ClassVar[tuple[type[Payload], ...]] = ()
    """The payloads it is about; none: the training."""
    about: ClassVar[str]
    """What a protocol without it leaves open, after "the protocol does not state"."""

    @classmethod
    def missing(cls) -> NotStated:
        """Return what to say where a protocol does not make this statement: what is open, and the fix, which is for the
        author of a protocol alone. One that has no such thing to state needs none."""
        subject = " and ".join(payload.__name__ for payload in cls.payloads)
        start = f"{subject}: the protocol" if subject else "the protocol"
        return NotStated(
            f"{start} does not state {cls.about}; if it is your own, state it in structure(): {cls.__name__}(...)",
            cls.payloads,
        )

    def values(self) -> dict[str, Any]:
        """Return the fields by name, as JSON has them: a tuple is a list there."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
