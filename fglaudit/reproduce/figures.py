"""From a row of a paper to ours: which module measures it, over how many seeds, or why nobody does."""

from __future__ import annotations

from collections.abc import Callable

from fglaudit.errors import FglauditError
from fglaudit.reproduce import data_tables, fedgat, fedgcn, fedgt, gfl_appnp, nfedgnn
from fglaudit.reproduce.published import Published, rows_of
from fglaudit.reproduce.trainings import Measured

Figure = Callable[[Published, int, str | None], Measured | str]
_PAPERS: dict[str, tuple[Figure, range]] = {
    "fedgcn": (fedgcn.figure, fedgcn.SEEDS),
    "fedgat": (fedgat.figure, fedgat.SEEDS),
    "fedgt": (fedgt.figure, fedgt.SEEDS),
    "nfedgnn": (nfedgnn.figure, nfedgnn.SEEDS),
    "gfl-appnp": (gfl_appnp.figure, gfl_appnp.SEEDS),
}
_ELSEWHERE = {
    "message-size": "measured by python -m bench encryption",
    "he-multiplicative-depth": "fglaudit show homomorphic-encryption has ours",
    "he-ring-dimension": "fglaudit show homomorphic-encryption has ours",
    "he-scale-factor-bits": "fglaudit show homomorphic-encryption has ours",
    "preprocessing-time": "measured by python -m bench fedgt-preprocessing",
    "communication-cost": "beside FedAvg over another network; GB sent stand in the rows of tables 1 and 2",
    "computation-cost": "beside FedAvg over another network; CPU seconds stand in the rows of tables 1 and 2",
}
_QUICK = ("cora", "subcora", "csbm-dnc", "csbm-sc")


def table_rows(table: str, *, quick: bool = False, only: str = "") -> tuple[Published, ...]:
    """Return the rows to reproduce.

    Args:
        quick: the smallest data sets alone.
        only: rows whose label contains this text alone.

    Raises:
        FglauditError: no such table, or no such row.
    """
    rows = rows_of(table)
    if table == "fedgcn-table2":
        rows = (*rows, *fedgcn.more(rows))
    if quick:
        rows = tuple(row for row in rows if row.dataset in ("", *_QUICK))
    chosen = tuple(row for row in rows if only.lower() in row.label.lower())
    if not chosen:
        raise FglauditError(
            f"--only names rows by a part of their label; {table} has none with {only!r}; its first is"
            f" {rows[0].label!r}"
        )
    return chosen


def seeds_of(row: Published, *, quick: bool = False) -> range:
    """Return the seeds over which ``row`` is measured; one for what does not depend on a seed."""
    _, seeds = _PAPERS[row.table.rpartition("-")[0]]
    if row.metric in data_tables.COUNTS or row.metric in ("label-rate", "communication"):
        return range(1)
    return seeds[:1] if quick else seeds


def measure(row: Published, seed: int, root: str | None) -> Measured | str:
    """Return our figure for ``row``, or why there is none: data that are not there, methods that are not built."""
    if row.metric in _ELSEWHERE:
        return _ELSEWHERE[row.metric]
    try:
        if row.metric in data_tables.COUNTS or row.metric == "label-rate":
            return data_tables.count(row, root)
        if row.metric in data_tables.PARTITIONS:
            return data_tables.partition_figure(row, seed, root)
        return _PAPERS[row.table.rpartition("-")[0]][0](row, seed, root)
    except FglauditError as error:
        return str(error)
