"""Full-batch gradient descent of one model on a whole graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import require_known, require_least
from fglaudit.federated.node_clients import NodeClients
from fglaudit.federated.node_progress import CHOICES, Choice, Record
from fglaudit.federated.problem import check_trainable, pooled
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.weights import Layout, glorot, unflatten
from fglaudit.payloads import Payload
from fglaudit.rng import split
from fglaudit.structure import Structure, Training


@dataclass(frozen=True)
class GradientDescent:
    """``local_steps`` gradient steps on the training nodes' mean cross-entropy before each of ``rounds`` evaluations.

    Attributes:
        choice: see :class:`fglaudit.federated.node_progress.Record`.
    """

    rounds: int
    local_steps: int
    learning_rate: float
    choice: str

    def __post_init__(self) -> None:
        require_least(self, rounds=1, local_steps=1, learning_rate=0)
        require_known(self, choice=CHOICES)

    def train(
        self,
        graph: FederatedGraph,
        initial: Tensor,
        layout: Layout,
        logits: Callable[[Mapping[str, Tensor]], Tensor],
        channel: Channel,
    ) -> Trained:
        """Train one model.

        Args:
            initial: the model to start from [D].
            logits: maps weights by name, shaped as in ``layout``, to the logits of all nodes [N, C].
        """
        whole = pooled(graph)
        data, nodes = NodeClients.of([whole], initial.device), whole.nodes.to(initial.device)
        record = Record(data, layout, self.choice, graph.owner()[whole.nodes])
        weights = {
            name: w.squeeze(0).clone().requires_grad_() for name, w in unflatten(initial.unsqueeze(0), layout).items()
        }
        optimizer = torch.optim.SGD(weights.values(), lr=self.learning_rate)
        train = data.train.squeeze(1)
        target, trained = data.y.squeeze(1)[train], nodes[train]  # a mask in the loop would wait for its count
        for round in range(1, self.rounds + 1):
            for _ in range(self.local_steps):
                optimizer.zero_grad()
                functional.cross_entropy(logits(weights)[trained], target).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            with torch.no_grad():
                model = torch.cat([weight.flatten() for weight in weights.values()]).unsqueeze(0)
                record.add(logits(weights)[nodes].unsqueeze(1), model)
            channel.round_done(round, self.rounds)
        return record.trained()


class FullBatchProtocol(FederatedProtocol):
    """A centralized model trained by :class:`GradientDescent`; ``rounds`` are evaluations.

    Subclasses are dataclasses that declare these fields themselves: findings print fields in order of declaration.
    """

    emits: ClassVar[tuple[type[Payload], ...]] = ()

    rounds: int
    local_steps: int
    learning_rate: float
    choice: Choice

    def initial(self, layout: Layout, rng: torch.Generator) -> Tensor:
        """Draw the first model [D]; ``rng`` is that of the training."""
        return glorot(layout, split(rng, "weights"))

    def descent(self) -> GradientDescent:
        return GradientDescent(self.rounds, self.local_steps, self.learning_rate, self.choice)

    def structure(self, graph: FederatedGraph) -> Structure:
        return Structure((Training("sgd", self.learning_rate, local_steps=self.local_steps),))

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)
