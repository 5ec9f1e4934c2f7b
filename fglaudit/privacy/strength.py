"""The same defense at a strength towards nothing: what ``Defense.weakened`` of every defense agrees on.

A defense that stops an attack has only worked if the attack succeeds through the same defense at no strength (rule
4): otherwise the attack may just not read what the defense sends.
"""

from __future__ import annotations

from fglaudit.errors import FglauditError
from fglaudit.privacy.accounting import MAX_EPSILON, VANISHING_EPSILON


def check_factor(factor: float) -> None:
    """Raise :class:`FglauditError` unless 0 < factor <= 1."""
    if not 0 < factor <= 1:
        raise FglauditError(
            f"a defense is weakened to a share of its strength in (0, 1]; got {factor}; 1 leaves it as it is"
        )


def weaker_budget(epsilon: float, factor: float) -> float:
    """Return ``epsilon / factor``, at most the largest epsilon that the accountant judges: at 10000 one Gaussian
    release has noise of 0.007 times its sensitivity."""
    check_factor(factor)
    return min(epsilon / factor, max(epsilon, MAX_EPSILON))


def vanishing_budget(epsilon: float, factor: float) -> float:
    """Return ``epsilon / factor^3``, at most where noise vanishes: for a clip that bounds many entries together, of
    which an attack reads single ones. Noise of a hundredth of such a clip still hides them."""
    check_factor(factor)
    return min(epsilon / factor**3, VANISHING_EPSILON)


def weaker_count(count: int, least: int, factor: float) -> int:
    """Return ``count``, of which more protects more, moved towards ``least`` where it protects least."""
    check_factor(factor)
    return least + round((count - least) * factor)
