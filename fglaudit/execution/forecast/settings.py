"""The forecasts of a suite: one for all cells that differ in their seeds or in fractions alone.

Cells are probed in a process of its own, which is ended where the first rounds of one take too long.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.child import start_child
from fglaudit.execution.engines.data_child import is_memory, without_memory
from fglaudit.execution.forecast.alike import setting
from fglaudit.execution.forecast.costs import machine_seconds
from fglaudit.execution.forecast.forecast import Forecast
from fglaudit.execution.forecast.probe import probe
from fglaudit.graph import Graph
from fglaudit.interruption import leave_to_parent
from fglaudit.registry import is_stand_in
from fglaudit.suite.cell import Cell

WILL_FAIL = "will fail: "
SECONDS_EACH, SECONDS_ALL = 60.0, 180.0
"""After so many seconds a probe is given up, and no further one is begun."""


def forecasts(
    cells: Collection[Cell], skipped: Collection[DatasetSpec] = ()
) -> Iterator[tuple[list[Cell], Forecast | str]]:
    """Yield the cells of every setting with what one of them will take, or why that is not known.

    Args:
        skipped: data sets that are not loaded.
    """
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[setting(cell)].append(cell)
    end = time.monotonic() + SECONDS_ALL
    with _Prober() as prober:
        for members in groups.values():
            cell = members[0]
            if (why := _unknown(cell, skipped)) is not None:
                yield members, f"not estimated: {why}"
            elif time.monotonic() > end:
                yield members, f"not estimated: others took {SECONDS_ALL:.0f} s"
            else:
                yield members, prober.ask(_built_in(cell), SECONDS_EACH)


def _unknown(cell: Cell, skipped: Collection[DatasetSpec]) -> str | None:
    if any(is_stand_in(plugin) for plugin in (cell.protocol, cell.defense, cell.behaviour)):
        return "plugin files are not run here"
    return "its data set was not opened" if cell.dataset in skipped else None


def _built_in(cell: Cell) -> Cell:
    """Return ``cell`` without the attacks of plugin files."""
    return dataclasses.replace(cell, attacks=tuple(attack for attack in cell.attacks if not is_stand_in(attack)))


class _Prober:
    """The process that probes; a new one after each that was ended."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> _Prober:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        self._end()

    def ask(self, cell: Cell, seconds: float) -> Forecast | str:
        """Return what ``cell`` will take, or why that is not known."""
        if self._connection is None:
            self._start()
        assert self._connection is not None
        try:
            self._connection.send(cell)
            if not self._connection.poll(seconds):
                self._end()
                return f"not estimated: its first rounds take more than {seconds:.0f} s"
            found: Forecast | str = self._connection.recv()
        except (EOFError, OSError):
            self._end()
            return f"not estimated: {without_memory(cell.dataset, 'in its first rounds')}"
        return found

    def _start(self) -> None:
        self._process, self._connection = start_child(_serve)
        self._connection.recv()  # once it has imported what it needs

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


def _serve(connection: Connection) -> None:
    leave_to_parent()
    torch.set_num_threads(1)
    speed = machine_seconds()
    loaded: tuple[DatasetSpec, Graph] | None = None
    connection.send(None)
    with contextlib.suppress(EOFError):
        while True:
            cell: Cell = connection.recv()
            try:
                if loaded is None or loaded[0] != cell.dataset:
                    loaded = cell.dataset, cell.dataset.load()
                found = probe(cell, loaded[1])
                connection.send(found if isinstance(found, str) else Forecast.of(found, speed))
            except FglauditError as error:
                connection.send(f"{WILL_FAIL}{error}")
            except Exception as error:
                doing = "in its first rounds"
                why = without_memory(cell.dataset, doing) if is_memory(error) else f"{type(error).__name__}: {error}"
                connection.send(f"not estimated: {why}")
