"""No defense: messages travel as the protocol makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.context import Context
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.privacy.strength import check_factor


@dataclass(frozen=True)
class NoDefense(Defense):
    """Change nothing, promise nothing."""

    name: ClassVar[str] = "none"

    def weakened(self, factor: float) -> NoDefense:
        """Return itself: nothing is done."""
        check_factor(factor)
        return self

    def bind(self, context: Context) -> DefenseSession:
        return DefenseSession()
