"""FedGT's graph transformer, trained by every client alone ("Local" in FedGT's Tables 1 and 2). Nothing is sent.

All as in ``fglaudit.protocols.fedgt`` but for the exchange: every client keeps its own weights and global nodes from the same first
ones. The paper does not state how long Local trains; it gets as many rounds here as FedGT.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import torch

from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.subgraph_progress import Progress
from fglaudit.payloads import Payload
from fglaudit.protocols.fedgt import FedGT


@dataclass(frozen=True)
class LocalGT(FederatedProtocol):
    """Local-only graph transformer; fields as in :class:`fglaudit.protocols.fedgt.FedGT`."""

    name: ClassVar[str] = "local-gt"
    emits: ClassVar[tuple[type[Payload], ...]] = ()

    layers: int = 2
    hidden: int = 128
    heads: int = 4
    feed_forward: int = 256
    neighbors: int = 16
    global_nodes: int = 10
    encoding: int = 8
    sampling: str = "ppr"
    restart: float = 0.15
    candidates: int = 64
    rounds: int = 100
    local_epochs: int = 1
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    dropout: float = 0.5
    momentum: float = 0.9

    def __post_init__(self) -> None:
        self.federated()

    def federated(self) -> FedGT:
        """Return the protocol whose clients these are."""
        return FedGT(**{f.name: getattr(self, f.name) for f in fields(self)})

    @property
    def num_rounds(self) -> int:
        return self.rounds

    def check(self, graph: FederatedGraph) -> None:
        self.federated().check(graph)

    def examples(self, graph: FederatedGraph) -> str:
        return self.federated().examples(graph).replace("fedgt", self.name)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        models, model, global_nodes = self.federated().prepare(graph, channel, rng, device)
        models.load(model.expand(graph.num_clients, -1), global_nodes.expand(graph.num_clients, -1, -1))
        progress = Progress(models)
        for round in range(1, self.rounds + 1):
            models.train_round()
            progress.test()
            channel.round_done(round, self.rounds)
        return progress.finish()
