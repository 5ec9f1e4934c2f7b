"""Rows for which a paper prints no number: its figures, and variants that belong beside its tables.

A setting such as ``iid, degree=8`` names a partition first and then fields of the protocol (:func:`fields`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fglaudit.reproduce.papers import curve_rows, fedgt_rows, openfgl
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.rounds import ROUND, UPDATE, numbers

CONNECTIVITY = "lambda_max"
"""A metric: the largest eigenvalue of ``B_N L^+``."""
DIRICHLET = {"iid": 10000.0, "partly iid beta=100": 100.0, "non-iid beta=1": 1.0}
SMOOTH = "FedGAT, source: code"


def fields(setting: str) -> dict[str, Any]:
    """Return the fields that ``setting`` names after its first part, e.g. ``iid, degree=8`` -> ``{"degree": 8}``."""
    return {name: value for name, value in numbers(setting).items() if name not in (ROUND, UPDATE)}


def rows_of(table: str) -> tuple[Published, ...]:
    """Return the rows of ``table`` that no paper prints."""
    if rows := curve_rows.rows_of(table) or openfgl.rows_of(table):
        return rows
    if table == "gfl-appnp-figure2":
        return tuple(_connectivity())
    others = tuple(Published(table, *row, "accuracy", "percent", None, None) for row in _ROWS.get(table, ()))
    return (*others, *fedgt_rows.rows_of(table))


_Row = tuple[str, str, str, str]


def _fedgcn_depth() -> Iterator[_Row]:
    for layers in (2, 3, 4, 6):
        for method in ("Centralized GCN", "FedGCN(0-hop)", "FedGCN(1-hop)", "FedGCN(2-hop)"):
            yield "cora", f"beta=1, layers={layers}", "10", method


def _fedgcn_clients() -> Iterator[_Row]:
    for clients in (5, 10, 20, 50, 100):
        for method in ("FedGCN(0-hop)", "FedGCN(1-hop)", "FedGCN(2-hop)"):
            yield "cora", "beta=10000", str(clients), method


def _fedgat_clients() -> Iterator[_Row]:
    for dataset in ("cora", "citeseer"):
        for clients in (2, 5, 10, 20):
            for setting in ("iid", "non-iid beta=1"):
                for method in ("FedGAT", "DistGAT", "FedGCN"):
                    yield dataset, setting, str(clients), method


def _one_topology() -> Iterator[_Row]:
    """Yield the rows of csbm-dnc with one topology for all draws, as the paper has it: which one is not published."""
    for method in ("APPNP", "GFL-APPNP I=10", "GFL-APPNP I=20", "GFL-APPNP I=50", "GFL-APPNP-V2 I=10", "GraphSAGE"):
        for topology in range(100, 110):
            yield "csbm-dnc", f"fixed, topology={topology}", "", method


def _connectivity() -> Iterator[Published]:
    """Yield Figure 2(a)'s graphs: their connectivity, as appendix A.2.3 prints it, and the accuracy, which is drawn."""
    for degree, printed in ((25, 1.76e-3), (15, 4.17e-3), (10, 1.09e-2), (5, 7.52e-2)):
        row = ("gfl-appnp-figure2", "csbm-sc", f"connectivity, degree={degree}", "", "GFL-APPNP I=10")
        yield Published(*row, CONNECTIVITY, "eigenvalue", printed, None)
        yield Published(*row, "accuracy", "percent", None, None)


_ROWS: dict[str, tuple[_Row, ...]] = {
    "fedgcn-figure2": tuple(_fedgcn_depth()),
    "fedgcn-figure5": tuple(_fedgcn_clients()),
    "fedgat-table1": tuple(
        (dataset, setting, "10", method)
        for dataset in ("cora", "citeseer", "pubmed")
        for setting in ("iid", "non-iid beta=1")
        for method in ("FedGAT, remote: embeddings", SMOOTH)
    ),
    "fedgat-figure2": tuple(_fedgat_clients()),
    "nfedgnn-section4.2": (("cora", "", "2708", "nFedGNN-GCN, row-normalised"),),
    "gfl-appnp-table2": (
        *((dataset, "", "", "GFL-APPNP I=10, averaging all") for dataset in ("csbm-dnc", "subcora", "csbm-snc")),
        *_one_topology(),
    ),
}
