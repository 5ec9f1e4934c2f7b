"""Tables about the data: counts of data sets, and what FedGT's partitions lose (missing links, label heterogeneity)."""

from __future__ import annotations

from fglaudit.datasets import DatasetSpec, dataset_facts
from fglaudit.partition import partition_facts
from fglaudit.reproduce import fedgt
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import Measured
from fglaudit.rng import derive

COUNTS = ("nodes", "edges", "features", "classes", "train", "val", "test")
PARTITIONS = {"missing-links": "missing_links", "label-heterogeneity": "label_heterogeneity_with_self"}
"""Metrics, and where :func:`fglaudit.partition.partition_facts` has them."""


def count(row: Published, root: str | None) -> Measured | str:
    """Return a count of a data set; FedGT counts the largest component, nFedGNN both directions of an edge."""
    component = "largest" if row.table.startswith("fedgt") else "all"
    facts = dataset_facts(DatasetSpec(row.dataset, root=root, component=component).load())
    if row.metric == "label-rate":
        train = facts["train"]
        return Measured(100 * float(train) / float(facts["nodes"])) if train != "none" else "no public split"
    value = facts[row.metric]
    if value == "none":
        return "no public split"
    both = 2 if row.table.startswith("nfedgnn") and row.metric == "edges" else 1
    return Measured(both * float(value))


def partition_figure(row: Published, seed: int, root: str | None) -> Measured | str:
    """Return missing links or label heterogeneity of a partition of FedGT's."""
    dataset, partition = fedgt.split_of(row, root)
    whole = dataset.load()
    facts = partition_facts(partition.apply(whole, dataset, derive(seed, "partition")), whole)
    value = facts[PARTITIONS[row.metric]]
    return Measured(float(value)) if isinstance(value, int | float) else "not a number"
