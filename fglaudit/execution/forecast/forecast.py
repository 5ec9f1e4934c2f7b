"""From the first rounds of a cell and a table of costs to what the whole cell will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from fglaudit.datasets.size import in_words
from fglaudit.errors import duration
from fglaudit.execution.forecast.costs import AUDITS, COSTS, REFERENCE
from fglaudit.execution.forecast.probe import Probe


@dataclass(frozen=True)
class Forecast:
    """What a cell will take.

    Attributes:
        training: seconds of one core, all trainings together, extrapolated from rounds that were trained.
        attacks, audits: seconds of one core, by the table of costs and the speed of this machine.
        memory: bytes at the peak of training, measured; attacks may take more.
        disk: bytes of recorded messages, measured and extrapolated.
        unknown: attacks whose cost was never measured: they are not in it, so that it is a least value.
    """

    training: float
    attacks: float
    audits: float
    memory: int
    disk: int
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, probe: Probe, machine_seconds: float) -> Self:
        """Return the forecast for a machine that takes ``machine_seconds`` for :func:`.costs.machine_seconds`."""
        slower = machine_seconds / REFERENCE
        known = [(COSTS[attack], size) for (_, attack), size in probe.attacks.items() if attack in COSTS]
        audits = _seconds(COSTS[AUDITS], probe.released) if probe.released and AUDITS in COSTS else 0.0
        return cls(
            training=probe.training * probe.trainings,
            attacks=slower * sum(_seconds(cost, size) for cost, size in known),
            audits=slower * audits,
            memory=probe.memory,
            disk=probe.disk,
            unknown=tuple(dict.fromkeys(attack for _, attack in probe.attacks if attack not in COSTS)),
        )

    @property
    def seconds(self) -> float:
        """Of one core, in all."""
        return self.training + self.attacks + self.audits

    def __str__(self) -> str:
        parts = [("training", self.training), ("attacks", self.attacks), ("audits", self.audits)]
        split = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts if seconds)
        missing = without(self.unknown)
        seconds = f"{'at least' if missing else 'about'} {duration(self.seconds)} ({split}{missing and f'; {missing}'})"
        return f"{seconds}, at least {in_words(self.memory)} of memory, {in_words(self.disk)} on disk"


def without(attacks: Sequence[str]) -> str:
    """Return that the cost of ``attacks`` is not known, in words; nothing where there are none."""
    return f"without {', '.join(attacks)}, whose cost is not known" if attacks else ""


def _seconds(cost: tuple[float, float], size: int) -> float:
    start, rate = cost
    return start + rate * size / 1e6
