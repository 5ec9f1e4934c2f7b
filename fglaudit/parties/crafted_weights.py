"""A server that sends weights made to be answered, in the first rounds; then the model of the honest start, as if
nothing had been.

**FedGCN**: updates then show how many training nodes of each class a client has. The last layer has no bias: its
gradient for class c is ``sum_i h_i (p_ic - y_ic) / t``, over t training nodes with propagated hidden units h_i. Honest
weights mix unknown h_i with unknown predictions p_i. The crafted ones make both plain (after EC-LDA, arXiv 2505.15140,
which makes embeddings alike by crafted weights):

* rounds 0, 2, ...: all first weights are one small positive number, so that every unit shows the same positive size of
  a node's neighbourhood, and the last weights are 0: all predictions are 1/C. The gradient is ``A / C - A_c``, where
  A_c is the size of the nodes of class c together and A that of all.
* rounds 1, 3, ...: the same, but a quarter of the units makes the first class certain. The other units, which predict
  nothing, show ``-A_c`` of every other class: from both A and all A_c follow. One step makes those units inactive
  whatever the client holds (their weights fall below 0 at all of its words); later steps are those of an even round.

Both survive several local steps, since weights this small stay small, and dropout, which units average. The attack
``update-shares`` reads the answers.

**GFL-APPNP**, variants that share Jacobians: ``dh[c] / dW1[f, k] = W2[k, c] x_f`` where unit k is active. First weights
in pairs of opposite sign make one unit of every pair active for any row, and last weights that are all large multiply
the row, but not the noise that variant V1, or a defense, adds to what is sent. The attack ``jacobian-reading`` weighs
rounds by their weights and reads the rows. Variant V2 sends no Jacobian.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.rng import derive

_SMALL, _CERTAIN = 1e-3, 1e5
"""First weights, and the last weights of units that make a class certain: logits are beyond 100 for any row."""
_SHARE = 4
_LOUD = 1e4
"""Last weights that multiply rows: next to it noise of deviation 1 is below what exactness asks for."""


@dataclass(frozen=True)
class CraftedWeights(Behaviour):
    """The server sends crafted weights in the first rounds, then goes on from the honest first model.

    Attributes:
        rounds: how many; 2 show everything, more average over dropout and noise.
    """

    name: ClassVar[str] = "crafted-weights"
    shown: ClassVar[tuple[str, ...]] = ("rounds",)

    rounds: int = 8

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise FglauditError(f"crafted-weights needs rounds >= 1; got {self.rounds}; raise it")

    def unsupported(self, protocol: FederatedProtocol, graph: FederatedGraph) -> str | None:
        if isinstance(protocol, GFLAPPNP):
            if protocol.variant == "v2":
                return "crafted-weights make Jacobians show rows; gfl-appnp's variant v2 sends none"
        elif not isinstance(protocol, FedGCN) or protocol.layers != 2:
            return (
                "crafted-weights are made for FedGCN's two layers without biases and for GFL-APPNP's Jacobians, not for"
                f" {protocol.name}"
            )
        if protocol.rounds <= self.rounds:
            return f"crafted-weights takes {self.rounds} rounds before training; there are {protocol.rounds}"
        if protocol.hidden < _SHARE:
            return f"crafted-weights needs at least {_SHARE} hidden units; there are {protocol.hidden}"
        return None

    def bind(self, protocol: FederatedProtocol, graph: FederatedGraph, rng: torch.Generator) -> Conduct:
        if isinstance(protocol, GFLAPPNP):
            return _Crafting(self.rounds, protocol.layout(graph), amplifying, f"last weights are all {_LOUD:g}")
        assert isinstance(protocol, FedGCN)
        return _Crafting(self.rounds, protocol.layout(graph), counting, f"first weights are all {_SMALL:g}")


@dataclass
class _Crafting(Conduct):
    rounds: int
    layout: Layout
    craft: Callable[[Layout, int], Tensor]
    sign: str
    first: list[Tensor] = field(default_factory=list)

    def sends(self, batch: MessageBatch) -> MessageBatch:
        if not isinstance(batch.payload, ModelUpdate) or bool((batch.senders != SERVER).any()):
            return batch
        if batch.round > self.rounds:
            return batch
        vectors = batch.payload.vector
        if not self.first:
            self.first.append(vectors[:1].clone())
        model = self.first[0] if batch.round == self.rounds else self.craft(self.layout, batch.round).to(vectors)
        return dataclasses.replace(batch, payload=ModelUpdate(model.expand(len(vectors), -1)))

    def remarks(self, trained: Trained) -> tuple[str, ...]:
        during = trained.accuracy.nanmean(1)[: self.rounds - 1]
        words = f", and test at {float(during.mean()):.3f} on average with them" if len(during) else ""
        return (
            f"crafted-weights: clients receive {self.rounds} models whose {self.sign}, whatever they"
            f" upload{words}: whoever looks, notices",
        )


def counting(layout: Layout, round: int) -> Tensor:
    """Return the model [1, D] of a ``round`` that shows a GCN's label counts."""
    shapes = list(layout.values())
    weights = {name: torch.zeros(1, *shape) for name, shape in layout.items()}
    first, last = weights.values()
    first.fill_(_SMALL)
    if round % 2:
        last[:, : shapes[0][1] // _SHARE, 0] = _CERTAIN
    return flatten(weights)


def amplifying(layout: Layout, round: int) -> Tensor:
    """Return the model [1, D] of a ``round`` that shows the rows in GFL-APPNP's Jacobians."""
    (first, (features, units)), (last, shape) = layout.items()
    half = _SMALL * torch.randn(1, features, (units + 1) // 2, generator=derive(round, "crafted weights"))
    return flatten({first: torch.cat([half, -half], 2)[:, :, :units], last: torch.full((1, *shape), _LOUD)})
