"""The figures that the papers print, row by row (``published.csv``)."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

BY_THEIR_CODE = ", as published code"
"""End of the method of a row that is no row of a paper: one computed once more as its authors' code does."""
AT_THEIR_RATE = ", learning rate 0.01"
"""The same for one of FedGT's tables, computed as its text says but for the learning rate, which is its code's."""
PARTED_CLUSTERS = ", parted"
"""The same for GCFL+ with a bound at which its clusters part."""
FEW_HIDDEN = ", a tenth hidden"
"""The same for FedSage+ with as many nodes hidden from its generators as its own authors' code hides."""
TITLES = {
    "fedgcn-table2": "FedGCN, Table 2: accuracy of federated GCNs over 10 clients",
    "fedgcn-figure2": "FedGCN, Figure 2: accuracy against the number of layers, Cora",
    "fedgcn-figure4": "FedGCN, Figure 4: accuracy against bytes",
    "fedgcn-figure5": "FedGCN, Figure 5: accuracy against the number of clients, Cora",
    "fedgcn-figure6": "FedGCN, Figure 6: rounds until training is flat, and bytes, against the share of iid data, Cora",
    "fedgcn-table3": "FedGCN, Table 3: data sets",
    "fedgcn-table5": "FedGCN, Table 5: parameters of homomorphic encryption",
    "fedgcn-table6": "FedGCN, Table 6: sizes of encrypted messages",
    "fedgat-table1": "FedGAT, Table 1: accuracy of GAT, DistGAT, FedGCN and FedGAT over 10 clients",
    "fedgat-figure2": "FedGAT, Figure 2: accuracy against the number of clients",
    "fedgat-figure3": "FedGAT, Figure 3: bytes before training against the number of clients",
    "fedgat-figure4": "FedGAT, Figure 4: bytes before training, 20 to 100 clients, Cora",
    "fedgat-figure5": "FedGAT, Figure 5: accuracy against the degree of the series, Cora",
    "fedgat-figure6": "FedGAT, Figure 6: accuracy of the vector variant against the number of clients",
    "fedgat-figure7": "FedGAT, Figure 7: bytes before training of the vector variant, Cora",
    "fedgat-figure8": "FedGAT, Figure 8: bytes before training of the vector variant, CiteSeer",
    "fedgat-table2": "FedGAT, Table 2: data sets",
    "fedgt-table1": "FedGT, Table 1: accuracy, subgraphs without common nodes",
    "fedgt-table2": "FedGT, Table 2: accuracy, overlapping subgraphs",
    "fedgt-table3": "FedGT, Table 3: data sets",
    "fedgt-table4": "FedGT, Table 4: accuracy, Louvain communities",
    "fedgt-table5": "FedGT, Table 5: cost of communication and computation beside FedAvg",
    "fedgt-table6": "FedGT, Table 6: missing links, subgraphs without common nodes",
    "fedgt-table7": "FedGT, Table 7: missing links, overlapping subgraphs",
    "fedgt-table8": "FedGT, Table 8: label heterogeneity, subgraphs without common nodes",
    "fedgt-table9": "FedGT, Table 9: label heterogeneity, overlapping subgraphs",
    "fedgt-table10": "FedGT, Table 10: seconds of preprocessing",
    "fedgt-table11": "FedGT, Table 11: accuracy, unbalanced clients",
    "fedgt-table12": "FedGT, Table 12: ways to compare clients",
    "fedgt-figure2": "FedGT, Figure 2: similarity of 20 overlapping clients in round 30, Cora",
    "fedgt-figure3": "FedGT, Figure 3: layers, global nodes, sampled nodes, tau and noise, Cora",
    "fedgt-figure5": "FedGT, Figure 5: accuracy by round, subgraphs without common nodes",
    "fedgt-figure6": "FedGT, Figure 6: accuracy by round, overlapping subgraphs",
    "fedgt-figure7": "FedGT, Figure 7: ways to sample nodes",
    "fedgt-figure8": "FedGT, Figure 8: epsilon of the noise",
    "fedgt-figure9": "FedGT, Figure 9(b): without global attention or personalized aggregation",
    "fedgt-tau": "FedGT with and without its noise, tau from 1 to 100",
    "nfedgnn-table1": "nFedGNN, Table 1: uploads in 200 rounds",
    "nfedgnn-table2": "nFedGNN, Table 2: data sets",
    "nfedgnn-section4.2": "nFedGNN, section 4.2: the one accuracy that is printed",
    "nfedgnn-figure3": "nFedGNN, Figure 3: the split GCN by round, Cora",
    "nfedgnn-figure4": "nFedGNN, Figures 4 and 6: the GCN at its best lambda, by round",
    "nfedgnn-figure5": "nFedGNN, Figure 5: the GCN at each lambda, by round",
    "nfedgnn-figure7": "nFedGNN, Figures 7 and 8: the GAT at its best lambda, by round",
    "nfedgnn-figure9": "nFedGNN, Figure 9: the GAT at each lambda, by round",
    "gfl-appnp-table1": "GFL-APPNP, Table 1: accuracy beside centralized models",
    "gfl-appnp-table2": "GFL-APPNP, Table 2: accuracy for its three tasks and variants",
    "gfl-appnp-figure2": "GFL-APPNP, Figure 2(a): accuracy against the connectivity of the graph",
    "gfl-appnp-figure3": "GFL-APPNP, Figure 3: training and validation loss by update",
    "openfgl-cora": "OpenFGL, no paper of the five: FED-PUB and FedSage+ on Cora, 10 Louvain clients",
}
"""By name, all that can be reproduced; of figures the papers print no numbers (:mod:`.papers.unprinted`)."""


@dataclass(frozen=True)
class Published:
    """One row of a paper.

    Attributes:
        table: a key of ``TITLES``.
        dataset: as this package names it; "" where the row is about none.
        setting: partition or the like, in the paper's words.
        clients: as printed; "" where it does not apply.
        method: in the paper's words.
        metric: accuracy, a count of the data set, missing-links, ...
        unit: of ``mean`` and ``spread``.
        mean: as printed; None where the paper has a curve or nothing.
        spread: as printed, of whatever kind; None where none is.
    """

    table: str
    dataset: str
    setting: str
    clients: str
    method: str
    metric: str
    unit: str
    mean: float | None
    spread: float | None

    @property
    def key(self) -> dict[str, str]:
        """What identifies the row within its table."""
        return {name: getattr(self, name) for name in ("dataset", "setting", "clients", "method", "metric")}

    @property
    def label(self) -> str:
        """The row in a few words."""
        clients = f"{self.clients} clients" if self.clients else ""
        metric = self.metric if self.metric != "accuracy" else ""
        return ", ".join(filter(None, (self.method, self.dataset, self.setting, clients, metric)))


@cache
def all_published() -> tuple[Published, ...]:
    """Return every printed figure, in the order of the papers."""
    numbers: dict[str, Callable[[str], Any]] = {"mean": float, "spread": lambda text: float(text) if text else None}
    lines = packaged("published.csv")
    return tuple(Published(**{k: numbers.get(k, str)(text) for k, text in line.items()}) for line in lines)


@cache
def packaged(name: str) -> tuple[dict[str, str], ...]:
    """Return the lines of a CSV file that ships with the package."""
    text = files("fglaudit.reproduce").joinpath(name).read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))
