"""ProGAP: progressive aggregation perturbation (Sajadmanesh and Gatica-Perez, WSDM 2024).

As :mod:`fglaudit.protocols.private.gap`, in stages (section 4, algorithm 1): after every sum the network is trained
further with the noisy totals in its inputs, and what the *next* step sums is what the hidden layer of that network
makes of a node's row and of the totals so far, at length 1. Later sums therefore depend on own rows again, and every
step is a release for any unit: edges, and rows of nodes too.

The paper's stages have networks of their own, each on the embeddings of those before; here one network grows by the
weights of its new inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.federated.embedding_sums import EmbeddingExchange
from fglaudit.federated.home_head import unit_rows
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.interfaces import Channel, Trained
from fglaudit.protocols.private.gap import GAP, Stage, vector


@dataclass(frozen=True)
class ProGAP(GAP):
    """Noisy sums of hidden rows, one stage of training after each.

    Attributes:
        hops: one stage for each; 1, 2 and so on without a gap.
        rounds: of every stage.
    """

    name: ClassVar[str] = "progap"
    later: ClassVar[str] = "hidden"

    rounds: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.hops) != list(range(1, len(self.hops) + 1)):
            raise FglauditError(f"progap has a stage after every sum; got hops: {list(self.hops)}; use e.g. [1, 2]")

    @property
    def num_rounds(self) -> int:
        return self.encoder_rounds + len(self.hops) * self.rounds

    @property
    def noisy_steps(self) -> int:
        return len(self.hops)

    def aggregate(
        self,
        own: Tensor,
        exchange: EmbeddingExchange,
        edges: KeptEdges,
        channel: Channel,
        stages: list[Trained],
        trained: Stage,
    ) -> None:
        """Sum hidden rows, train on with the totals, and again."""
        found: list[Tensor] = []
        done = self.encoder_rounds
        for _ in self.hops:
            rows = self.embedded(own, found, stages[-1])
            found.append(unit_rows(exchange.total(rows, channel, done)))
            stages.append(trained(found, vector(stages[-1], own.device), done, self.rounds))
            done += self.rounds
