"""Clients that are single nodes with one sample or several, as one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.federated.problem import check_training
from fglaudit.graph import ClientGraph, FederatedGraph, components

TASKS = ("dnc", "snc", "sc")


def task_of(graph: FederatedGraph) -> str:
    """Return the task that fits ``graph``: "dnc" (one sample per node), "snc" (several with one label) or "sc"."""
    return "dnc" if graph.x.dim() == 2 else "snc" if graph.y.dim() == 1 else "sc"


def check_node_clients(protocol: str, graph: FederatedGraph, *, connected: bool = True) -> None:
    """Raise :class:`FglauditError` unless client k is node k, one can train and the graph is ``connected``."""
    if graph.num_clients != graph.num_nodes or any(nodes.tolist() != [k] for k, nodes in enumerate(graph.clients)):
        raise FglauditError(
            f"{protocol} needs every node to be a client of its own; {graph.name!r} has {graph.num_nodes} nodes at"
            f" {graph.num_clients} clients; use scheme: per-node"
        )
    check_training(protocol, graph, "samples")
    count = int(components(graph.edge_index, graph.num_nodes).max().item()) + 1
    if connected and count > 1:
        raise FglauditError(
            f"{protocol} needs a connected graph; {graph.name!r} falls into {count} components; use component: largest,"
            " or another draw"
        )


@dataclass(frozen=True)
class NodeClients:
    """All samples of N node clients.

    Attributes:
        x: [N, S, F].
        y: [N, S].
        train, val, test: [N, S].
    """

    x: Tensor
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor

    @staticmethod
    def of(clients: Sequence[ClientGraph], device: torch.device) -> NodeClients:
        """Stack the clients' samples in their order; one label or mask of a node holds for all its samples."""
        x = torch.cat([client.x for client in clients]).float().to(device)
        x = x.unsqueeze(1) if x.dim() == 2 else x

        def per_sample(parts: list[Tensor]) -> Tensor:
            stacked = torch.cat(parts).to(device)
            return stacked.unsqueeze(1).expand(x.shape[:2]) if stacked.dim() == 1 else stacked

        y = per_sample([client.y for client in clients])
        masks = [
            per_sample([getattr(client, name) for client in clients]) & (y >= 0) for name in ("train", "val", "test")
        ]
        return NodeClients(x, y, *masks)

    def trained_on(self) -> NodeClients:
        """Return the training samples alone.

        Raises:
            FglauditError: nodes have different numbers of them.
        """
        counts = self.train.sum(1)
        size = int(counts.max().item())
        if bool((counts != size).any()):
            raise FglauditError(
                "source: code shares means over training samples, of which every node needs equally many; got"
                f" {int(counts.min().item())} to {size}; use source: paper"
            )
        first = torch.argsort(~self.train, dim=1, stable=True)[:, :size]
        x = self.x.gather(1, first.unsqueeze(2).expand(-1, -1, self.x.shape[2]))
        return NodeClients(x, *(part.gather(1, first) for part in (self.y, self.train, self.val, self.test)))

    def training_rows(self, num_classes: int) -> Rows:
        """Return the training samples of the clients that have any."""
        clients = self.train.any(1).nonzero().squeeze(1)
        mask = self.train[clients]
        size = int(mask.sum(1).max().item())
        first = torch.argsort(~mask, dim=1, stable=True)[:, :size]  # training samples first, in their order
        at = first.unsqueeze(2).expand(-1, -1, self.x.shape[2])
        x = self.x[clients].gather(1, at)
        labels = self.y[clients].gather(1, first).clamp(min=0)
        present = mask.gather(1, first)
        return Rows(clients, x, torch.nn.functional.one_hot(labels, num_classes).to(x.dtype), present)


@dataclass(frozen=True)
class Rows:
    """Training samples of the T clients that have any, padded to B each.

    Attributes:
        clients: [T].
        x: [T, B, F].
        target: one-hot labels [T, B, C].
        present: [T, B]; False where padded.
    """

    clients: Tensor
    x: Tensor
    target: Tensor
    present: Tensor
