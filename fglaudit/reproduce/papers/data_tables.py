"""Tables about the data: counts of data sets, and what FedGT's partitions lose (missing links, label heterogeneity)."""

from __future__ import annotations

from fglaudit.datasets import DatasetSpec, dataset_facts
from fglaudit.partition import partition_facts
from fglaudit.reproduce.papers import fedgt
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import Measured
from fglaudit.rng import derive

COUNTS = ("nodes", "edges", "features", "classes", "train", "val", "test")
AMAZON = ("computers", "photo")
PARTITIONS = {"missing-links": "missing_links", "label-heterogeneity": "label_heterogeneity_with_self"}
"""Metrics, and where :func:`fglaudit.partition.partition_facts` has them."""
SEEDS = range(2, 34)
"""Of partitions: the paper has one, whose seed is not published."""


def count(row: Published, root: str | None) -> Measured | str:
    """Return a count of a whole data set; nFedGNN counts both directions of an edge, FedGT of Amazon's alone."""
    facts = dataset_facts(DatasetSpec(row.dataset, root=root).load())
    if row.metric == "label-rate":
        train = facts["train"]
        return Measured(100 * float(train) / float(facts["nodes"])) if train != "none" else "no public split"
    value = facts[row.metric]
    if value == "none":
        return "no public split"
    directed = row.table.startswith("nfedgnn") or (row.table.startswith("fedgt") and row.dataset in AMAZON)
    return Measured((2 if directed and row.metric == "edges" else 1) * float(value))


def partition_figure(row: Published, seed: int, root: str | None) -> Measured | str:
    """Return missing links or label heterogeneity of a partition of FedGT's."""
    dataset, partition = fedgt.split_of(row, root)
    whole = dataset.load()
    facts = partition_facts(partition.apply(whole, dataset, derive(seed, "partition")), whole)
    value = facts[PARTITIONS[row.metric]]
    return Measured(float(value)) if isinstance(value, int | float) else "not a number"
