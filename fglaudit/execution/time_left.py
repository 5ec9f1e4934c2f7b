"""How long the rest of a run takes, from cells like those that are left.

Cells of one suite differ a hundredfold: one whose defense does not serve its protocol takes no time, one whose
guarantee is put to the test takes minutes. So a cell is only ever expected to take what a cell like it took, and while
there are cells that none was like, no more than a least time is said.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from fglaudit.errors import counted, duration
from fglaudit.execution.forecast.alike import setting
from fglaudit.suite.cell import Cell


class TimeLeft:
    """Knows which cells are left, and how long those like them took in this run."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._settings = {cell.hash(): setting(cell) for cell in cells}
        self._took: dict[str, list[float]] = {}
        self._starts: dict[str, float] = {}
        self._begin, self._busy = time.monotonic(), 0.0

    def started(self, cell: str) -> None:
        """Note that the cell of this name begins."""
        self._starts[cell] = time.monotonic()

    def finished(self, cell: str) -> float:
        """Note that it is finished, and return the seconds that it took."""
        took = time.monotonic() - self._starts.pop(cell)
        self._busy += took
        self._took.setdefault(self._settings.pop(cell), []).append(took)
        return took

    def words(self) -> str:
        """Return how long the rest takes; empty where nothing is left, or nothing known of it."""
        known, unknown = self._seconds()
        if sum(known) < 1.0:
            return ""
        # As many at a time as there were until now; a single cell is never divided.
        now = time.monotonic()
        at_once = (self._busy + sum(now - start for start in self._starts.values())) / max(now - self._begin, 1e-9)
        left = duration(max(sum(known) / max(at_once, 1.0), *known))
        if not unknown:
            return f"about {left} left"
        return f"at least {left} left, without {counted(unknown, 'cell')} unlike any that is finished"

    def _seconds(self) -> tuple[list[float], int]:
        """Return what cells that are left will take, where one like them is finished, and of how many none is."""
        now, known, unknown = time.monotonic(), list[float](), 0
        for cell, kind in self._settings.items():
            if (took := self._took.get(kind)) is None:
                unknown += 1
            else:
                passed = now - self._starts[cell] if cell in self._starts else 0.0
                known.append(max(sum(took) / len(took) - passed, 0.0))
        return known, unknown
