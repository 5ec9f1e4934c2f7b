"""Measures the rows of a table that are missing, one seed at a time, and writes what there is."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from fglaudit.execution.folder.lock import folder_lock
from fglaudit.execution.folder.run_folder import run_folder
from fglaudit.files.own import make_folder
from fglaudit.reproduce import matrices
from fglaudit.reproduce.measurements import Table
from fglaudit.reproduce.measuring import measure, seeds_of, table_rows
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import CPU, Measured

KEY = ("dataset", "setting", "clients", "method", "metric", "seed")
VALUES = ("value", "seconds", "gb_up", "gb_down", "device")


@dataclass(frozen=True)
class Compared:
    """A row of a paper beside ours.

    Attributes:
        values: ours, one per seed, in the paper's unit.
        seconds: CPU seconds, gigabytes: sent up and down, both means over seeds.
        reason: why there are none.
    """

    row: Published
    values: tuple[float, ...]
    seconds: float
    gigabytes: float
    reason: str

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def gap(self) -> float | None:
        """Ours minus the paper's; None where the paper prints no number."""
        return None if self.mean is None or self.row.mean is None else self.mean - self.row.mean

    @property
    def deviations(self) -> float | None:
        """The gap in standard deviations of our runs."""
        return self.gap / self.spread if self.gap is not None and self.spread else None


def reproduce(
    table: str,
    folder: Path,
    *,
    quick: bool = False,
    only: str = "",
    root: str | None = None,
    seeds: int | None = None,
    device: torch.device = CPU,
    announce: Callable[[str], None] = lambda text: None,
) -> list[Compared]:
    """Measure what ``folder/measurements.csv`` lacks and return all rows; stopped, it goes on where it was.

    Seeds are in the outer loop, so that a stopped table is a fair one with fewer seeds.

    Args:
        device: trains, where the row's figure is not one of cost.
        seeds: how many, at most; None: as many as the paper's table is reproduced with.

    Raises:
        FglauditError: no such table or row; ``folder`` cannot be written, or another process measures into it.
    """
    rows = table_rows(table, quick=quick, only=only)
    folder = run_folder(folder)
    if not folder.is_dir():
        make_folder(folder)
    stored = Table(folder / "measurements.csv", KEY, VALUES)
    planned = {row: seeds_of(row, quick=quick)[:seeds] for row in rows}
    reasons: dict[Published, str] = {}
    with (
        _told_by(announce),
        folder_lock(folder, 0),
    ):  # two processes would store a seed twice, and it would count as two runs
        for row, seed in _in_turn(planned):
            if row in reasons or stored.has({**row.key, "seed": seed}):
                continue
            found = measure(row, seed, root, device)
            if isinstance(found, str):
                if found not in reasons.values():
                    announce(f"left out: {found}")
                reasons[row] = found  # not stored: with other data or another version there may be a figure
            else:
                if found.matrix is not None:  # before the figure: a row that is stored is not measured again
                    matrices.store(folder, row, seed, found.matrix)
                _store(row, seed, found, stored, announce)
    return compared(rows, stored, reasons)


@contextmanager
def _told_by(announce: Callable[[str], None]) -> Iterator[None]:
    """Have warnings announced the moment they are given, each once, instead of printed with their place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *place: announce(f"warning: {message}")
        yield


def _in_turn(planned: Mapping[Published, Sequence[int]]) -> Iterator[tuple[Published, int]]:
    """Yield the first seed of every row, then the second of each, and so on."""
    for place in range(max(map(len, planned.values()))):
        yield from ((row, seeds[place]) for row, seeds in planned.items() if place < len(seeds))


def _store(row: Published, seed: int, found: Measured, stored: Table, announce: Callable[[str], None]) -> None:
    paper = "" if row.mean is None else f" (paper {row.mean:g})"
    announce(f"{row.label}, seed {seed}: {rounded(found.value)}{paper}, {found.seconds:.1f} CPU s")
    stored.add(
        {
            **row.key,
            "seed": seed,
            "value": repr(found.value),
            "seconds": f"{found.seconds:.2f}",
            "gb_up": f"{found.gigabytes_up:.4f}",
            "gb_down": f"{found.gigabytes_down:.4f}",
            "device": found.device,
        }
    )


def rounded(value: float) -> str:
    """Return ``value`` with two decimals, below 1 with three digits: losses and shares are small."""
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def compared(rows: Sequence[Published], stored: Table, reasons: Mapping[Published, str]) -> list[Compared]:
    """Return ``rows`` beside what is stored of them."""
    by_key: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for line in stored.rows():
        by_key.setdefault(tuple(line[column] for column in KEY[:-1]), []).append(line)
    found = [by_key.get(tuple(row.key[column] for column in KEY[:-1]), []) for row in rows]
    return [_compared(row, lines, reasons.get(row, "")) for row, lines in zip(rows, found, strict=True)]


def _compared(row: Published, lines: Sequence[dict[str, str]], reason: str) -> Compared:
    def mean(*columns: str) -> float:
        return statistics.fmean(sum(float(line[c]) for c in columns) for line in lines) if lines else 0.0

    return Compared(
        row=row,
        values=tuple(float(line["value"]) for line in lines),
        seconds=mean("seconds"),
        gigabytes=mean("gb_up", "gb_down"),
        reason="" if lines else reason or "not measured yet",
    )
