"""A defense whose sessions are those of another one with something around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from fglaudit.context import Context
from fglaudit.interfaces import Defense, DefenseSession


@dataclass(frozen=True)
class Wrapped(Defense):
    """``honest``, each of whose sessions ``around`` gets."""

    name: ClassVar[str] = "wrapped"
    shown: ClassVar[tuple[str, ...]] = ()

    honest: Defense
    around: Callable[[DefenseSession], DefenseSession]

    def unsupported(self, context: Context) -> str | None:
        return self.honest.unsupported(context)

    def bind(self, context: Context) -> DefenseSession:
        return self.around(self.honest.bind(context))

    def weakened(self, factor: float) -> Wrapped:
        return replace(self, honest=self.honest.weakened(factor))
