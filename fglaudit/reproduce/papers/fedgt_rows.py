"""Rows of FedGT's figures, of which the paper prints no numbers, and of what explains its tables.

Rows of one training follow one another, so that it is made once. Where the text does not say which numbers an axis has,
which methods are drawn, or on how many clients, the choice is ours: the methods are those of Table 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from fglaudit.reproduce.papers.fedgt_methods import NOISY_UPDATES
from fglaudit.reproduce.published import AT_THEIR_RATE, BY_THEIR_CODE, Published

OWN_WEIGHT = "own-weight"
"""A metric: the weight of a client's own model in its average, mean over clients, and over rounds if none is named."""
CORRELATION, CLUSTERS = "label-correlation", "cluster-ratio"
"""Metrics of similarities: correlation with that of label distributions over pairs of clients, and the mean within the
groups of clients that were drawn from one part of the graph over that between groups."""
LABELS = "label distributions"
"""The method of Figure 2(a), which is no training."""
BUDGETS = ("epsilon-of-a-coordinate", "epsilon-of-a-round", "epsilon-of-training")
"""Metrics: what noise spends on one number, on all that a client sends in a round, and on that of all rounds."""
DATASETS = ("cora", "citeseer", "pubmed", "computers", "photo", "ogbn-arxiv")
TAUS = (1, 5, 20, 100)
_ACCURACY = {"accuracy": "percent"}
_DRAWN = ("FedAvg", "FedPer", "GCFL+", "FedSage+", "FED-PUB", "Gophormer", "GraphGPS", "FedGT")
_ROUNDS = (1, 5, 10, 20, 30, 40, 60, 80, 100)
_CLIPS, _SCALES = (0.001, 0.002, 0.004), (0.0005, 0.001, 0.002, 0.004)
_COMPARED = (
    "FedGT",
    "FedGT w/o optimal transport",
    "FedGT (local-update similarity)",
    "FedGT without noise",
    "FedGT without noise, w/o optimal transport",
)
_SAMPLED = ("FedGT", "FedGT, GraphSAGE sampling", "FedGT, attribute similarity sampling")
_ABLATED = ("FedGT", "FedGT w/o global attention", "FedGT w/o personalized aggregation")


def rows_of(table: str) -> tuple[Published, ...]:
    """Return the rows of ``table``; none for those of other modules."""
    return tuple(_ROWS[table](table)) if table in _ROWS else ()


def _rows(
    table: str, dataset: str, setting: str, clients: int, method: str, metrics: Mapping[str, str] = _ACCURACY
) -> Iterator[Published]:
    for metric, unit in metrics.items():
        yield Published(table, dataset, setting, str(clients), method, metric, unit, None, None)


def _similarities(table: str) -> Iterator[Published]:
    place, ratio = (table, "cora", "overlapping, rounds=30, round=30", 20), {CLUSTERS: "ratio"}
    yield from _rows(*place, LABELS, ratio)
    for method in _COMPARED:
        yield from _rows(*place, method, {CORRELATION: "correlation"} | ratio | {OWN_WEIGHT: "weight"})


def _sweeps(table: str) -> Iterator[Published]:
    sweeps = {"layers": (1, 2, 3, 4, 5), "global_nodes": (1, 5, 10, 20), "neighbors": (4, 8, 16, 32), "tau": TAUS}
    for name, values in sweeps.items():
        for value in values:
            yield from _rows(table, "cora", f"non-overlapping, {name}={value}", 10, "FedGT")
    yield from _rows(table, "cora", "non-overlapping", 10, "FedGT without noise")
    for method, clip, scale in product(("FedGT", NOISY_UPDATES), _CLIPS, _SCALES):
        yield from _rows(table, "cora", f"non-overlapping, clip={clip}, scale={scale}", 10, method)


def _taus(table: str) -> Iterator[Published]:
    settings = (("cora", "non-overlapping", 5), ("citeseer", "non-overlapping", 5), ("citeseer", "overlapping", 10))
    for (dataset, scheme, clients), tau in product(settings, TAUS):
        for method in ("FedGT", "FedGT without noise", "FedGT debiased"):
            yield from _rows(
                table, dataset, f"{scheme}, tau={tau}", clients, method, _ACCURACY | {OWN_WEIGHT: "weight"}
            )


def _curves(scheme: str, clients: int) -> Callable[[str], Iterator[Published]]:
    def rows(table: str) -> Iterator[Published]:
        for dataset, method, round in product(DATASETS, _DRAWN, _ROUNDS):
            yield from _rows(table, dataset, f"{scheme}, round={round}", clients, method)

    return rows


def _samplings(table: str) -> Iterator[Published]:
    for dataset, method in product(DATASETS, _SAMPLED):
        yield from _rows(table, dataset, "non-overlapping", 10, method)
    for dataset in ("cora", "citeseer"):
        yield from _rows(table, dataset, "non-overlapping", 10, f"{_SAMPLED[-1]}, all nodes")


def _budgets(table: str) -> Iterator[Published]:
    """Yield what noise spends; the paper states ``2 delta / lambda`` whatever is sent how often."""
    for method, clip, scale, metric in product(("FedGT", NOISY_UPDATES), _CLIPS, _SCALES, BUDGETS):
        setting = f"non-overlapping, clip={clip}, scale={scale}"
        yield Published(table, "cora", setting, "10", method, metric, "epsilon", 2 * clip / scale, None)


def _ablations(table: str) -> Iterator[Published]:
    for reading, dataset, method in product(("", AT_THEIR_RATE, BY_THEIR_CODE), DATASETS, _ABLATED):
        yield from _rows(table, dataset, "non-overlapping", 10, method + reading)


_ROWS: dict[str, Callable[[str], Iterator[Published]]] = {
    "fedgt-figure2": _similarities,
    "fedgt-figure3": _sweeps,
    "fedgt-figure5": _curves("non-overlapping", 10),
    "fedgt-figure6": _curves("overlapping", 30),
    "fedgt-figure7": _samplings,
    "fedgt-figure8": _budgets,
    "fedgt-figure9": _ablations,
    "fedgt-tau": _taus,
}
