"""FedGT's graph transformer, trained by every client alone ("Local" in FedGT's Tables 1 and 2). Nothing is sent.

It differs from ``fglaudit.protocols.fedgt.fedgt`` only in the exchange: all clients start from the same weights and
global nodes and keep their own. The paper does not state how long Local trains; here it has as many rounds as FedGT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.federated.subgraph_progress import Progress
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.payloads import Payload
from fglaudit.protocols.fedgt.hybrid_protocol import HybridProtocol


@dataclass(frozen=True)
class LocalGT(HybridProtocol):
    """Local-only graph transformer.

    Fields are those of :class:`fglaudit.protocols.fedgt.hybrid_protocol.HybridProtocol`.
    """

    name: ClassVar[str] = "local-gt"
    emits: ClassVar[tuple[type[Payload], ...]] = ()

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        models, model, global_nodes = self.prepare(graph, channel, rng, device)
        models.load(model.expand(graph.num_clients, -1), global_nodes.expand(graph.num_clients, -1, -1))
        progress = Progress(models)
        for round in range(1, self.rounds + 1):
            models.train_round()
            progress.test()
            channel.round_done(round, self.rounds)
        return progress.finish()
