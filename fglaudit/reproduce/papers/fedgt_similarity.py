"""FedGT's Figure 2: whether what clients are compared by tells which of them have similar labels.

Compared are the weights of the personal averages (equation (8)) with the cosines of label distributions, over all
ordered pairs of different clients. Five clients are drawn from each part of the graph: groups that the figure shows.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fglaudit.partition.facts import label_similarity
from fglaudit.partition.overlapping import DRAWS_PER_PART
from fglaudit.reproduce.papers import fedgt
from fglaudit.reproduce.papers.fedgt_rows import CLUSTERS, CORRELATION, LABELS
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import Measured
from fglaudit.rng import derive

METRICS = (CORRELATION, CLUSTERS)


def figure(row: Published, seed: int, root: str | None, device: torch.device) -> Measured:
    """Return our figure for ``row`` with the matrix [K, K] that it is of."""
    dataset, partition = fedgt.split_of(row, root)
    labels = label_similarity(partition.apply(dataset.load(), dataset, derive(seed, "partition")))
    measured, matrix = Measured(0.0), labels
    if row.method != LABELS:
        outcome, measured = fedgt.outcome_of(row, seed, root, device)
        matrix = outcome.matrices["personal_weights"][outcome.round].double()
    value = correlation(matrix, labels) if row.metric == CORRELATION else cluster_ratio(matrix)
    return replace(measured, value=value, matrix=matrix)


def correlation(first: Tensor, second: Tensor) -> float:
    """Return the correlation of two matrices [K, K] over their entries off the diagonal."""
    off = ~torch.eye(len(first), dtype=torch.bool)
    return float(torch.corrcoef(torch.stack([first[off], second[off]]))[0, 1])


def cluster_ratio(matrix: Tensor) -> float:
    """Return the mean of [K, K] over different clients of one part of the graph, over that of clients of two parts."""
    part = torch.arange(len(matrix)) // DRAWS_PER_PART
    together = part.unsqueeze(0) == part.unsqueeze(1)
    off = ~torch.eye(len(matrix), dtype=torch.bool)
    return float(matrix[together & off].mean() / matrix[~together].mean())
