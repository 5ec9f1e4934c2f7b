"""Matrices of pairs of clients beside the figures that were computed from them: a CSV file each, of which heat maps are
drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fglaudit.errors import FglauditError, shown
from fglaudit.execution.folder.csv_files import csv_text
from fglaudit.files.own import make_folder, read_own, write_atomic
from fglaudit.reproduce.published import Published

FOLDER = "matrices"
_FIX = "remove it, and the row's lines of measurements.csv, and run the command again"


def store(folder: Path, row: Published, seed: int, matrix: Tensor) -> None:
    """Write ``matrix`` [K, K] into a folder inside ``folder``; rows that differ in their metric alone share a file."""
    make_folder(folder / FOLDER)
    write_atomic(_path(folder, row, seed), csv_text(matrix.tolist()), linked=False)


def stored(folder: Path, rows: Iterable[Published], seeds: Iterable[int]) -> dict[str, Tensor]:
    """Return the matrices that there are for ``rows``, by label without metric, each of the first of ``seeds`` that has
    one.

    Raises:
        FglauditError: a file is damaged.
    """
    seeds, found = tuple(seeds), {}
    for row in dict.fromkeys(replace(row, metric="accuracy", unit="", mean=None) for row in rows):
        path = next((path for seed in seeds if (path := _path(folder, row, seed)).exists()), None)
        if path is not None:
            found[row.label] = _read(path)
    return found


def _path(folder: Path, row: Published, seed: int) -> Path:
    words = " ".join((row.method, row.dataset, row.setting, row.clients)).lower()
    return folder / FOLDER / f"{re.sub('[^a-z0-9.]+', '-', words).strip('-')}-seed-{seed}.csv"


def _read(path: Path) -> Tensor:
    text = read_own(path, "a matrix of pairs of clients", _FIX).decode("utf-8", "replace")
    try:
        matrix = torch.tensor([[float(cell) for cell in line.split(",")] for line in text.splitlines()])
    except ValueError:
        matrix = torch.empty(0)
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or not bool(torch.isfinite(matrix).all()):
        raise FglauditError(
            f"a matrix of clients has as many numbers a line as lines; {shown(str(path))} has not; {_FIX}"
        )
    return matrix
