"""Training that ended no better than naming the largest class: a result of such a run says nothing of the method."""

from __future__ import annotations

import math

import torch

from fglaudit.graph import FederatedGraph
from fglaudit.outcomes import Trained
from fglaudit.partition.facts import tested_labels

DEVIATIONS = 2.0
"""Of the share of right answers that a constant guess has on so many test nodes, drawn anew."""


def collapsed(protocol: str, trained: Trained, graph: FederatedGraph) -> tuple[str, ...]:
    """Return a note where the accuracy over the whole test set is within chance of the share of its largest class, or
    below; nothing where there are no test nodes, or nodes of one class alone.

    The note has no figures, so that equal ones of many cells are counted as one; the accuracy is a column.
    """
    labels = tested_labels(graph)
    accuracy = trained.whole_test_set
    if not len(labels) or math.isnan(accuracy):
        return ()
    largest = float(torch.bincount(labels).max().item()) / len(labels)
    if largest == 1 or accuracy > largest + DEVIATIONS * math.sqrt(largest * (1 - largest) / len(labels)):
        return ()
    return (
        f"{protocol}: training collapsed or is too short: its accuracy is within chance of naming the largest class for"
        " every node; try more rounds, another learning_rate, optimizer: adam, or features: row-normalised",
    )
