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

**FedGAT** and DistGAT: attention is a mean, and ELU has a floor. With attention vectors of 0 and first weights that are
all very negative every hidden unit of every node is -1, whatever its neighbourhood holds (features must not be
negative); with last weights of 0 all predictions are 1/C. The gradient of the last weights for class c is then
``share_c - 1/C`` at every unit: shares of heads, not of sizes. ``update-shares`` reads them. Later steps of the same
round would start from other predictions, so that one local step is asked for. Neighbours exchange hidden embeddings
that are all -1 as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.errors import require_least
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Trained
from fglaudit.nn.weights import Layout, flatten
from fglaudit.parties.base import Behaviour, Conduct
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate
from fglaudit.protocols.fedgat.gat_plan import GatProtocol
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
        require_least(self, rounds=1)

    @property
    def least_rounds(self) -> int:
        return self.rounds + 1

    def unsupported(self, protocol: FederatedProtocol, graph: FederatedGraph) -> str | None:
        if isinstance(protocol, GFLAPPNP):
            if protocol.variant == "v2":
                return "crafted-weights make Jacobians show rows; gfl-appnp's variant v2 sends none"
        elif isinstance(protocol, GatProtocol):
            if (why := _out_of_floor(protocol, graph)) is not None:
                return why
        elif not isinstance(protocol, FedGCN) or protocol.layers != 2:
            return (
                "crafted-weights are made for FedGCN's two layers without biases, GATs and GFL-APPNP's Jacobians,"
                f" not for {protocol.name}"
            )
        if protocol.rounds <= self.rounds:
            return f"crafted-weights takes {self.rounds} rounds before training; there are {protocol.rounds}"
        if not isinstance(protocol, GatProtocol) and protocol.hidden < _SHARE:
            return f"crafted-weights needs at least {_SHARE} hidden units; there are {protocol.hidden}"
        return None

    def shortened(self, rounds: int, of: int) -> CraftedWeights:
        fits = 1 <= rounds - 1 < self.rounds < of
        return dataclasses.replace(self, rounds=rounds - 1) if fits else self

    def bind(self, protocol: FederatedProtocol, graph: FederatedGraph, rng: torch.Generator) -> Conduct:
        if isinstance(protocol, GFLAPPNP):
            return _Crafting(self.rounds, protocol.layout(graph), amplifying, f"last weights are all {_LOUD:g}")
        if isinstance(protocol, GatProtocol):
            layout = protocol.shape().layout(graph.num_features, graph.num_classes)
            return _Crafting(self.rounds, layout, leveling, f"first weights are all {-_LOUD:g}")
        assert isinstance(protocol, FedGCN)
        return _Crafting(self.rounds, protocol.layout(graph), counting, f"first weights are all {_SMALL:g}")


def _out_of_floor(protocol: GatProtocol, graph: FederatedGraph) -> str | None:
    """Return why hidden units cannot all be brought to ELU's floor in single steps, or None."""
    if ModelUpdate not in type(protocol).emits:
        return f"crafted-weights are models that clients receive; {protocol.name} sends none"
    if bool((graph.x < 0).any()):
        return "crafted-weights bring a GAT's units to the floor of ELU by features >= 0; here some are negative"
    if protocol.bounds not in ("scores", "none"):
        return f"clients shrink crafted weights of {protocol.name} to bounds: {protocol.bounds}; use scores or none"
    if protocol.layers < 2:
        return "crafted-weights make a GAT's hidden units alike; with one layer there are none"
    if protocol.local_steps > 1:
        return f"crafted-weights read a GAT's single local steps; these clients take {protocol.local_steps}"
    return None


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


def leveling(layout: Layout, round: int) -> Tensor:
    """Return the model [1, D] of any ``round`` under which a GAT's hidden units are all -1 and its predictions equal.

    Inputs of the first layer are features >= 0, those of the next ones are -1.
    """
    weights = {name: torch.zeros(1, *shape) for name, shape in layout.items()}
    hidden = list(weights.values())[0:-3:3]
    for index, weight in enumerate(hidden):
        weight.fill_(_LOUD if index else -_LOUD)
    return flatten(weights)
