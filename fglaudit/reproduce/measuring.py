"""From a row of a paper to ours: which module measures it, over how many seeds, or why nobody does."""

from __future__ import annotations

from typing import Protocol

import torch

from fglaudit.errors import FglauditError, unknown
from fglaudit.interfaces import FederatedProtocol
from fglaudit.reproduce.papers import (
    curve_rows,
    data_tables,
    fedgat,
    fedgcn,
    fedgt,
    fedgt_budget,
    fedgt_costs,
    fedgt_rows,
    fedgt_similarity,
    gfl_appnp,
    message_sizes,
    nfedgnn,
    openfgl,
    unprinted,
)
from fglaudit.reproduce.published import TITLES, Published, all_published
from fglaudit.reproduce.trainings import CPU, Measured


class Paper(Protocol):
    """What the module of a paper has."""

    SEEDS: range

    def figure(self, row: Published, seed: int, root: str | None, device: torch.device) -> Measured | str:
        """Return our figure for an accuracy of the paper, or why there is none; ``device`` trains."""

    def protocol(self, row: Published) -> FederatedProtocol | str:
        """Return what trains the row's method, or why nothing does."""

    def obstacle(self, row: Published) -> str:
        """Return why no accuracy of ``row`` can be measured, whatever data there are; "" where one can."""


_PAPERS: dict[str, Paper] = {
    "fedgcn": fedgcn, "fedgat": fedgat, "fedgt": fedgt, "nfedgnn": nfedgnn, "gfl-appnp": gfl_appnp,
    "openfgl": openfgl,
}  # fmt: skip
_QUICK = ("cora", "subcora", "csbm-dnc", "csbm-sc")
_ONE_SEED = (
    *data_tables.COUNTS,
    "label-rate",
    *curve_rows.BYTES,
    *message_sizes.METRICS,
    *fedgt_costs.METRICS,
    *fedgt_rows.BUDGETS,
)
"""What does not depend on a seed, or hardly."""
NO_TRAINING = "no training method"


def paper(row: Published) -> Paper:
    """Return the module of the row's paper."""
    return _PAPERS[row.table.rpartition("-")[0]]


def protocol_of(row: Published) -> FederatedProtocol | str:
    """Return what trains the row's method, or why nothing does: counts, sizes and schemes of encryption train
    nothing."""
    if not row.method or row.metric in message_sizes.METRICS or row.method == fedgt_rows.LABELS:
        return NO_TRAINING
    return paper(row).protocol(row)


def rows_of(table: str) -> tuple[Published, ...]:
    """Return the rows of ``table``.

    Raises:
        FglauditError: there is no such table; the error lists those there are.
    """
    if table not in TITLES:
        raise unknown("table", table, TITLES)
    printed = tuple(row for row in all_published() if row.table == table)
    others = (*fedgcn.more(printed), *fedgat.more(printed), *fedgt.more(printed))
    again = gfl_appnp.more(printed) if table == "gfl-appnp-table2" else others
    return (*printed, *again, *unprinted.rows_of(table))


def table_rows(table: str, *, quick: bool = False, only: str = "") -> tuple[Published, ...]:
    """Return the rows to reproduce.

    Args:
        quick: the smallest data sets alone.
        only: rows whose label contains this text alone.

    Raises:
        FglauditError: no such table, or no such row.
    """
    rows = rows_of(table)
    if quick:
        rows = tuple(row for row in rows if row.dataset in ("", *_QUICK))
    chosen = tuple(row for row in rows if only.lower() in row.label.lower())
    if not chosen:
        first = f"; its first is {rows[0].label!r}" if rows else " for --quick"
        raise FglauditError(f"--only names rows by a part of their label; {table} has none with {only!r}{first}")
    return chosen


def seeds_of(row: Published, *, quick: bool = False) -> range:
    """Return the seeds over which ``row`` is measured; one for what does not depend on a seed."""
    if row.metric in _ONE_SEED:
        return range(2, 3) if row.metric in fedgt_costs.METRICS else range(1)
    seeds = data_tables.SEEDS if row.metric in data_tables.PARTITIONS else paper(row).SEEDS
    return seeds[:1] if quick else seeds


def obstacle(row: Published) -> str:
    """Return why ``row`` cannot be measured, whatever data there are; "" where it can."""
    if row.metric in fedgt_costs.METRICS:
        return fedgt.obstacle(row)
    return paper(row).obstacle(row) if row.metric == "accuracy" else ""


def measure(row: Published, seed: int, root: str | None, device: torch.device = CPU) -> Measured | str:
    """Return our figure for ``row``, or why there is none: data that are not there, methods that are not built.

    Args:
        device: trains; costs in CPU seconds stay on the CPU.
    """
    try:
        if row.metric in data_tables.COUNTS or row.metric == "label-rate":
            return data_tables.count(row, root)
        if row.metric in data_tables.PARTITIONS:
            return data_tables.partition_figure(row, seed, root)
        if row.metric in message_sizes.METRICS:
            return message_sizes.figure(row)
        if row.metric in fedgt_costs.METRICS:
            return fedgt_costs.figure(row, seed, root)
        if row.metric in fedgt_rows.BUDGETS:
            return fedgt_budget.figure(row, root)
        if row.metric in fedgt_similarity.METRICS:
            return fedgt_similarity.figure(row, seed, root, device)
        return paper(row).figure(row, seed, root, device)
    except FglauditError as error:
        return str(error)
