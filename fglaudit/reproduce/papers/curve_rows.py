"""Rows of the curves that FedGCN, FedGAT, nFedGNN and GFL-APPNP draw; they print no numbers of them.

Rows of one training follow one another, so that it is made once (:mod:`fglaudit.reproduce.rounds`). A number that the
papers' axes leave open (which rounds, how many clients) is a choice of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from fglaudit.reproduce.published import Published

BEFORE_TRAINING, PLATEAU = "communication-before-training", "plateau"
SENT, SENT_BESIDE_MODELS = "communication", "communication-beside-models"
BYTES = (BEFORE_TRAINING, SENT, SENT_BESIDE_MODELS)
"""Metrics of bytes: before the first round, of a whole training, and of that all but models."""
GENERATOR = "FedSage+, trained generator"
_PER_NODE = ("cora", "citeseer", "pubmed", "chameleon", "squirrel", "wikics")
_UPDATES = {"csbm-dnc": 3000, "subcora": 4000, "csbm-snc": 5000, "csbm-sc": 2000}
"""GFL-APPNP's data sets, and the number of updates on each."""
_ROUNDS = (1, 5, 10, 20, 50, 100, 150, 200)
_AT_UPDATES = (100, 200, 500, 1000, 2000, 3000, 4000, 5000)
_LOSSES = {"training-loss": "nats", "validation-loss": "nats"}
_BY_ROUND = {"accuracy": "percent", "training-loss": "nats"}
_IID = ("iid", "non-iid beta=1")


def rows_of(table: str) -> tuple[Published, ...]:
    """Return the rows of ``table``; none for those of other modules."""
    return tuple(_ROWS[table]()) if table in _ROWS else ()


def _row(table: str, dataset: str, setting: str, clients: str, method: str, metric: str, unit: str) -> Published:
    return Published(table, dataset, setting, clients, method, metric, unit, None, None)


def _fedgcn_costs() -> Iterator[Published]:
    methods = (*(f"FedGCN({hops}-hop)" for hops in range(3)), "Distributed GCN", "BDS-GCN", GENERATOR)
    metrics = {"accuracy": "percent", SENT: "MB", SENT_BESIDE_MODELS: "MB"}
    for dataset, beta, method in product(("ogbn-arxiv", "cora", "citeseer"), (1, 10000), methods):
        for metric, unit in metrics.items():
            yield _row("fedgcn-figure4", dataset, f"beta={beta}", "10", method, metric, unit)


def _fedgcn_convergence() -> Iterator[Published]:
    metrics = {PLATEAU: "rounds", SENT_BESIDE_MODELS: "MB", "accuracy": "percent"}
    for share, hops in product((0.0, 0.25, 0.5, 0.75, 1.0), (0, 1, 2)):
        for metric, unit in metrics.items():
            yield _row(
                "fedgcn-figure6", "cora", f"partly iid, share={share}", "10", f"FedGCN({hops}-hop)", metric, unit
            )


def _fedgat_bytes(
    table: str, datasets: Iterable[str], clients: Iterable[int], methods: Iterable[str]
) -> Iterator[Published]:
    for dataset, setting, count, method in product(datasets, _IID, clients, methods):
        yield _row(table, dataset, setting, str(count), method, BEFORE_TRAINING, "GB")


def _fedgat_degrees() -> Iterator[Published]:
    for setting in ("iid", "partly iid beta=100", "non-iid beta=1"):
        for degree in (8, 12, 16, 24, 32):
            yield _row("fedgat-figure5", "cora", f"{setting}, degree={degree}", "10", "FedGAT", "accuracy", "percent")
        yield _row("fedgat-figure5", "cora", setting, "10", "DistGAT", "accuracy", "percent")


def _fedgat_vectors() -> Iterator[Published]:
    clients, methods = (10, 20, 50, 100), ("Vector FedGAT", "DistGAT")
    for dataset, setting, count, method in product(("cora", "citeseer"), _IID, clients, methods):
        yield _row("fedgat-figure6", dataset, setting, str(count), method, "accuracy", "percent")


def _per_node(table: str, datasets: Iterable[str], methods: Iterable[str]) -> Iterator[Published]:
    for dataset, method, round in product(datasets, methods, _ROUNDS):
        for metric, unit in _BY_ROUND.items():
            yield _row(table, dataset, f"per-node, round={round}", "", method, metric, unit)


def _nfedgnn_split() -> Iterator[Published]:
    """Yield Figure 3's rows; its grey line is printed, as a figure of Kipf and Welling."""
    yield from _per_node("nfedgnn-figure3", ("cora",), ("nFedGNN-GCN, lambda 0",))
    yield Published("nfedgnn-figure3", "cora", "centralized", "", "GCN", "accuracy", "percent", 81.5, None)


def _nfedgnn_lambdas(table: str, model: str) -> Iterator[Published]:
    methods = [f"nFedGNN-{model}, lambda {value:g}" for value in (0.1, 1, 10, 100, 300)]
    yield from _per_node(table, ("cora", "citeseer", "pubmed"), methods)


def _gfl_losses() -> Iterator[Published]:
    for dataset, updates in _UPDATES.items():
        centralized = ("APPNP",) if dataset in ("csbm-dnc", "subcora") else ()
        for method in (*(f"GFL-APPNP I={steps}" for steps in (1, 10, 20, 50)), *centralized):
            for update in (each for each in _AT_UPDATES if each <= updates):
                for metric, unit in _LOSSES.items():
                    yield _row("gfl-appnp-figure3", dataset, f"per-node, update={update}", "", method, metric, unit)


_GCN = ("nFedGNN-GCN", "nFedGNN-GCN, lambda 0", "CNFGNN-GCN", "CNFGNN-GCN, fresh Adam", "CNFGNN-GCN, no decay")
_GAT = ("nFedGNN-GAT", "nFedGNN-GAT, lambda 0", "nFedGNN-GAT, clean latents", "nFedGNN-GAT, whole features")
_TO_100, _BOTH = (2, 5, 10, 20, 50, 100), ("Vector FedGAT", "FedGAT")
_ROWS: dict[str, Callable[[], Iterator[Published]]] = {
    "fedgcn-figure4": _fedgcn_costs,
    "fedgcn-figure6": _fedgcn_convergence,
    "fedgat-figure3": lambda: _fedgat_bytes("fedgat-figure3", ("cora", "citeseer"), (2, 5, 10, 20), ("FedGAT",)),
    "fedgat-figure4": lambda: _fedgat_bytes("fedgat-figure4", ("cora",), (20, 40, 60, 80, 100), ("FedGAT",)),
    "fedgat-figure5": _fedgat_degrees,
    "fedgat-figure6": _fedgat_vectors,
    "fedgat-figure7": lambda: _fedgat_bytes("fedgat-figure7", ("cora",), _TO_100, _BOTH),
    "fedgat-figure8": lambda: _fedgat_bytes("fedgat-figure8", ("citeseer",), _TO_100, _BOTH),
    "nfedgnn-figure3": _nfedgnn_split,
    "nfedgnn-figure4": lambda: _per_node("nfedgnn-figure4", _PER_NODE, _GCN),
    "nfedgnn-figure5": lambda: _nfedgnn_lambdas("nfedgnn-figure5", "GCN"),
    "nfedgnn-figure7": lambda: _per_node("nfedgnn-figure7", _PER_NODE, _GAT),
    "nfedgnn-figure9": lambda: _nfedgnn_lambdas("nfedgnn-figure9", "GAT"),
    "gfl-appnp-figure3": _gfl_losses,
}
