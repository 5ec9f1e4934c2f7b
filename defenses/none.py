"""No defense: messages travel as the protocol makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.context import Context
from fglaudit.interfaces import Defense, DefenseSession


@dataclass(frozen=True)
class NoDefense(Defense):
    """Change nothing, promise nothing."""

    name: ClassVar[str] = "none"

    def bind(self, context: Context) -> DefenseSession:
        return DefenseSession()
