"""FedGCN's clients between iid and not (section 5.1, Figure 6): a share of the nodes is dealt out evenly, the others
stay with nodes of their class.

The paper names the fraction of iid data and not how it is drawn. Here nodes are drawn at random; those of the iid share
go round the clients, those of class c to client c, or round all clients k with k mod C = c where there are more clients
than classes C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.partition import PartitionSpec
from fglaudit.rng import split


@dataclass(frozen=True)
class PartlyIid:
    """A partition, as :class:`fglaudit.partition.PartitionSpec` is one; ``share`` of the nodes is iid."""

    clients: int
    share: float

    def apply(self, graph: Graph, dataset: DatasetSpec, rng: torch.Generator) -> FederatedGraph:
        """Split ``graph``, with the masks that ``dataset`` asks for."""
        owner = owners(graph.y, self.clients, self.share, split(rng, "clients"))
        return PartitionSpec("given", self.clients).apply(replace(graph, clients=owner), dataset, rng)


def owners(labels: Tensor, clients: int, share: float, rng: torch.Generator) -> Tensor:
    """Return the client of every node [N].

    Raises:
        FglauditError: fewer clients than classes, or ``share`` is none.
    """
    classes = int(labels.max().item()) + 1
    if clients < classes or not 0 <= share <= 1 or bool((labels < 0).any()):
        raise FglauditError(
            f"every class needs a client of its own, every node a label, and the share lies in [0, 1]; got {clients}"
            f" clients for {classes} classes, {int((labels < 0).sum().item())} nodes without a label, share {share:g};"
            f" use {classes} clients or more"
        )
    order = torch.randperm(len(labels), generator=rng)
    even = order[: round(share * len(labels))]
    owner = torch.empty_like(labels)
    owner[even] = torch.arange(len(even)) % clients
    skewed = order[len(even) :]
    for label in range(classes):
        nodes = skewed[labels[skewed] == label]
        holders = torch.arange(label, clients, classes)
        owner[nodes] = holders[torch.arange(len(nodes)) % len(holders)]
    return owner
