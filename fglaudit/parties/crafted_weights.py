"""A server that sends weights made to be answered: clients' updates then show how many training nodes of each class.

The last layer of a GCN has no bias: its gradient for class c is ``sum_i h_i (p_ic - y_ic) / t``, over t training nodes
with propagated hidden units h_i. Honest weights mix unknown h_i with unknown predictions p_i. The crafted ones make
both plain (after EC-LDA, arXiv 2505.15140, which makes embeddings alike by crafted weights):

* rounds 0, 2, ...: all first weights are one small positive number, so that every unit shows the same positive size of
  a node's neighbourhood, and the last weights are 0: all predictions are 1/C. The gradient is ``A / C - A_c``, where
  A_c is the size of the nodes of class c together and A that of all.
* rounds 1, 3, ...: the same, but a quarter of the units makes the first class certain. The other units, which predict
  nothing, show ``-A_c`` of every other class: from both A and all A_c follow. One step makes those units inactive
  whatever the client holds (their weights fall below 0 at all of its words); later steps are those of an even round.

Both survive several local steps, since weights this small stay small, and dropout, which units average. Afterwards the
server sends the model of the honest start and goes on as if nothing had been. The attack ``update-shares`` reads the
answers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Trained
from fglaudit.nn.weights import Layout, flatten
from fglaudit.parties.base import Behaviour, Conduct
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate
from fglaudit.protocols.fedgcn.fedgcn import FedGCN

_SMALL, _CERTAIN = 1e-3, 1e5
"""First weights, and the last weights of units that make a class certain: logits are beyond 100 for any row."""
_SHARE = 4


@dataclass(frozen=True)
class CraftedWeights(Behaviour):
    """The server sends crafted weights in the first rounds, then goes on from the honest first model.

    Attributes:
        rounds: how many; 2 show everything, more average over dropout.
    """

    name: ClassVar[str] = "crafted-weights"
    shown: ClassVar[tuple[str, ...]] = ("rounds",)

    rounds: int = 8

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise FglauditError(f"crafted-weights needs rounds >= 1; got {self.rounds}; raise it")

    def unsupported(self, protocol: FederatedProtocol, graph: FederatedGraph) -> str | None:
        if not isinstance(protocol, FedGCN) or protocol.layers != 2:
            return f"crafted-weights are made for FedGCN's two layers without biases, not for {protocol.name}"
        if protocol.rounds <= self.rounds:
            return f"crafted-weights takes {self.rounds} rounds before training; there are {protocol.rounds}"
        if protocol.hidden < _SHARE:
            return f"crafted-weights needs at least {_SHARE} hidden units; there are {protocol.hidden}"
        return None

    def bind(self, protocol: FederatedProtocol, graph: FederatedGraph, rng: torch.Generator) -> Conduct:
        assert isinstance(protocol, FedGCN)
        return _Crafting(self.rounds, protocol.layout(graph))


@dataclass
class _Crafting(Conduct):
    rounds: int
    layout: Layout
    first: list[Tensor] = field(default_factory=list)

    def sends(self, batch: MessageBatch) -> MessageBatch:
        if not isinstance(batch.payload, ModelUpdate) or bool((batch.senders != SERVER).any()):
            return batch
        if batch.round > self.rounds:
            return batch
        vectors = batch.payload.vector
        if not self.first:
            self.first.append(vectors[:1].clone())
        model = self.first[0] if batch.round == self.rounds else crafted(self.layout, batch.round).to(vectors)
        return dataclasses.replace(batch, payload=ModelUpdate(model.expand(len(vectors), -1)))

    def remarks(self, trained: Trained) -> tuple[str, ...]:
        during = trained.accuracy.nanmean(1)[: self.rounds - 1]
        words = f", and test at {float(during.mean()):.3f} on average with them" if len(during) else ""
        return (
            f"crafted-weights: clients receive {self.rounds} models whose first weights are all {_SMALL:g}, whatever"
            f" they upload{words}: whoever looks, notices",
        )


def crafted(layout: Layout, round: int) -> Tensor:
    """Return the model [1, D] of a crafted ``round``."""
    shapes = list(layout.values())
    weights = {name: torch.zeros(1, *shape) for name, shape in layout.items()}
    first, last = weights.values()
    first.fill_(_SMALL)
    if round % 2:
        last[:, : shapes[0][1] // _SHARE, 0] = _CERTAIN
    return flatten(weights)
