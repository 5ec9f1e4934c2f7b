"""A partition as named in a suite, and its application to a graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.files.field_types import CheckedFields
from fglaudit.graph import FeatureKind, FederatedGraph, Graph
from fglaudit.partition.dirichlet import dirichlet
from fglaudit.partition.given import given
from fglaudit.partition.louvain import louvain
from fglaudit.partition.metis import metis
from fglaudit.partition.overlapping import overlapping
from fglaudit.partition.schemes import Scheme
from fglaudit.partition.splits import split_masks
from fglaudit.partition.unbalanced import unbalanced
from fglaudit.rng import split


@dataclass(frozen=True)
class PartitionSpec(CheckedFields):
    """Names a partition.

    Attributes:
        scheme: see ``fglaudit list partitions``.
        clients: number of clients; "per-node" ignores it and has one per node, "given" checks it.
        beta: concentration for "dirichlet": 10000 is close to iid, 0.1 very skewed.
    """

    example: ClassVar[str] = "scheme: dirichlet, clients: 10, beta: 10000"

    scheme: Scheme
    clients: int = 10
    beta: float | None = None

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise FglauditError(f"a partition needs at least one client; got clients: {self.clients}; use 1 or more")
        if self.scheme == "dirichlet":
            if self.beta is None or not math.isfinite(self.beta) or self.beta <= 0:
                raise FglauditError(
                    f"dirichlet needs beta > 0; got beta: {self.beta}; use e.g. 1 (skewed) or 10000 (near iid)"
                )
        elif self.beta is not None:
            raise FglauditError(
                f"beta belongs to scheme: dirichlet; got beta: {self.beta} with scheme: {self.scheme}; drop it"
            )

    def check(self, name: str, nodes: int, named: int | None) -> None:
        """Raise :class:`FglauditError` unless it fits a graph of ``nodes`` nodes that names ``named`` clients."""
        if self.scheme == "per-node":
            return
        if self.clients > nodes:
            raise FglauditError(
                f"every client needs at least one node; got {self.clients} clients for the {nodes} nodes of {name};"
                " lower clients, or use scheme: per-node"
            )
        if self.scheme == "given" and named is None:
            raise FglauditError(
                f"scheme: given takes the clients that the graph names; {name} names none; add an array clients [nodes]"
                " to its .npz (fglaudit import --client COLUMN), or use another scheme"
            )
        if self.scheme == "given" and named != self.clients:
            raise FglauditError(
                f"scheme: given has as many clients as the graph names; got clients: {self.clients}, {name} names"
                f" {named}; write clients: {named}"
            )

    def apply(self, graph: Graph, dataset: DatasetSpec, rng: torch.Generator) -> FederatedGraph:
        """Split ``graph`` over clients, with the masks that ``dataset`` asks for.

        Node ids stay those of ``graph``, and ``x`` keeps all N rows, also where a scheme leaves nodes out (unbalanced,
        overlapping); edges at such nodes are removed. Equal arguments give equal partitions.

        Raises:
            FglauditError: more clients than nodes, a client left empty, METIS missing, no public masks; "given" and a
            graph that names no clients, or another number of them.
        """
        self.check(graph.name, graph.num_nodes, graph.num_clients)
        clients = tuple(self._clients(graph, split(rng, "clients")))
        train, val, test = split_masks(graph, clients, dataset, split(rng, "split"), pooled=self.scheme == "per-node")
        return FederatedGraph(
            x=graph.x,
            y=graph.y,
            edge_index=(
                _edges_between(graph, clients) if self.scheme in ("unbalanced", "overlapping") else graph.edge_index
            ),
            clients=clients,
            train=train,
            val=val,
            test=test,
            name=graph.name,
            num_classes=graph.num_classes,
            features=FeatureKind.of(graph.x),
        )

    def _clients(self, graph: Graph, rng: torch.Generator) -> list[Tensor]:
        match self.scheme:
            case "dirichlet":
                assert self.beta is not None
                return dirichlet(graph, self.clients, self.beta, rng)
            case "metis":
                return metis(graph, self.clients, rng)
            case "louvain":
                return louvain(graph, self.clients, rng)
            case "overlapping":
                return overlapping(graph, self.clients, rng)
            case "unbalanced":
                return unbalanced(graph, self.clients, rng)
            case "given":
                return given(graph)
            case _:
                return list(torch.arange(graph.num_nodes).unsqueeze(1).unbind())


def _edges_between(graph: Graph, clients: tuple[Tensor, ...]) -> Tensor:
    """Return the edges whose two ends are at some client."""
    held = torch.zeros(graph.num_nodes, dtype=torch.bool)
    held[torch.cat(clients)] = True
    row, col = graph.edge_index
    return graph.edge_index[:, held[row] & held[col]]
