"""The noise that a defense states on one release, for scores of replays."""

from __future__ import annotations

from dataclasses import dataclass

from fglaudit.context import Release
from fglaudit.facts import Additive, Field, on
from fglaudit.interfaces import DefenseSession


@dataclass(frozen=True)
class StatedNoise:
    """Noise on every entry of ``fields``; without any on all floating-point ones. ``scale`` as in ``Additive``."""

    distribution: str
    scale: float
    fields: tuple[str, ...] = ()

    @staticmethod
    def of(session: DefenseSession, release: Release) -> StatedNoise | None:
        """Return what ``session`` states of ``release``; None if it states none, or noise that differs by field."""
        stated = on(session.facts(), release.payload, direction="down" if release.by_server else "up")
        noises = [fact for fact in stated if isinstance(fact, Additive)]
        kinds = {(fact.distribution, fact.scale) for fact in noises}
        names = tuple(fact.target.name for fact in noises if isinstance(fact.target, Field))
        if len(kinds) != 1 or len(set(names)) != len(names):
            return None
        ((distribution, scale),) = kinds
        return StatedNoise(distribution, scale, names if all(names) else ())
