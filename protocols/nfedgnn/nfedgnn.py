"""nFedGNN ("One Node Per User"): split learning with one node per user, smoothed by the graph's Laplacian.

Algorithm 1, equations (2)-(7), appendix D. User i holds the feature row ``x_i`` of one node and its own first-layer
weights ``W_i``. Every round the users upload their latents ``x_i W_i`` (GAT: one per head, one after the other); the
server, which has the topology and the labels of the training nodes, runs the rest of the GNN, takes a gradient step,
and returns to every user the gradient of the loss by its latent; the users step on ``W_i``. The loss is cross-entropy
plus lambda (``smoothness``) times the mean squared distance between the latents of neighbours.

What is observed: the server sees every latent of every round, and with broadcast initial weights it knows the matrix
that the first latents were computed with; it also knows every gradient that it sent. A user sees its own gradients,
which with ``smoothness`` contain differences to its neighbours' latents.

Choices where the paper's text is silent:

* Whether the first weights are common knowledge. ``initial_weights: broadcast``: the server draws them and sends them
  to every user (``ModelUpdate`` of round 0); ``private``: every user draws its own. Both are Glorot's uniform
  distribution.
* ``loss``: equation (3) is a sum over the labelled nodes, so lambda's effect depends on their number. The mean is the
  default, chosen on the validation nodes of Cora and CiteSeer.
* Dropout. The defaults are those of the GCN: between the layers, as in the GCN example of the library that the paper
  uses, and not on the features. ``feature_dropout`` drops entries of x at the user, a fresh mask every round (the
  original GCN's and GAT's place).
* Predictions come from the latents that were uploaded for training, so nothing else is sent and the bytes are those of
  Table 1. With ``feature_dropout`` these lack the dropped features; ``evaluation: clean`` uploads latents without
  dropout as well, every round after the update, at twice the bytes. They are ordinary messages: their noise and epsilon
  are counted.
* The regulariser of equation (6) counts every node as its own neighbour, which adds to the divisor but not to the sum.
* ``participation``: the sampled users upload, get their gradients and step; for the others the server takes the last
  latent it has, 0 before the first. Adam's bias correction counts a user's own steps.
* ``smoothing_hops`` is not the paper's: the server, which has the topology, propagates what arrived so many steps
  before its own layers. On noisy latents this is post-processing, at no epsilon; what users see are gradients through
  these steps. The regulariser stays one of the latents that arrived.
* There are no biases, as in the equations (Table 1's bytes of CNFGNN count one for the GCN).
* GAT: 8 heads with 16 units, feature dropout and dropout 0.6, learning rate 0.01: set them beside ``split: gat``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fglaudit.context import Release
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.fedavg import sample_clients
from fglaudit.federated.node_progress import Choice
from fglaudit.federated.smoothing import remarks
from fglaudit.federated.training import Optimizer
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.payloads import LatentGradients, Latents, ModelUpdate, Payload
from fglaudit.protocols.nfedgnn.split_training import (
    Loss,
    Split,
    SplitProtocol,
    send_gradients,
    send_latents,
    send_model,
)
from fglaudit.protocols.nfedgnn.user_weights import Entries, UserWeights
from fglaudit.rng import split
from fglaudit.structure import Structure, Training

InitialWeights = Literal["broadcast", "private"]
Evaluation = Literal["training", "clean"]


@dataclass(frozen=True)
class NFedGNN(SplitProtocol):
    """nFedGNN; the defaults are the paper's settings of the split GCN.

    Attributes:
        split, hidden, heads: see :class:`fglaudit.protocols.nfedgnn.split_training.SplitModel`.
        smoothness: weight of the graph-Laplacian regulariser, the paper's lambda (searched in 0.1, 1, 10, 100, 300).
        rounds: uploads of every user.
        optimizer, learning_rate: of the users, see :class:`fglaudit.protocols.nfedgnn.user_weights.Stepping`.
        server_optimizer, server_learning_rate: of the server.
        weight_decay: on both sides.
        dropout, loss, choice: at the server, see :class:`fglaudit.protocols.nfedgnn.split_training.ServerSettings`.
        feature_dropout: share of its features that a user drops every round.
        evaluation: "training" or "clean", see above.
        participation: share of the users sampled each round.
        initial_weights: "broadcast" or "private", see above.
        smoothing_hops: steps of propagation of the latents that arrived, at the server, before its layers; 0: none.
    """

    name: ClassVar[str] = "nfedgnn"
    shown: ClassVar[tuple[str, ...]] = ("split", "smoothness", "initial_weights")
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate, Latents, LatentGradients)

    split: Split = "gcn"
    smoothness: float = 100.0
    hidden: int = 16
    heads: int = 8
    rounds: int = 200
    optimizer: Optimizer = "adam"
    learning_rate: float = 0.1
    server_optimizer: Optimizer = "adam"
    server_learning_rate: float = 0.1
    weight_decay: float = 5e-4
    dropout: float = 0.5
    feature_dropout: float = 0.0
    loss: Loss = "mean"
    choice: Choice = "last"
    evaluation: Evaluation = "training"
    participation: float = 1.0
    initial_weights: InitialWeights = "broadcast"
    smoothing_hops: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, smoothing_hops=0)
        if not 0 < self.participation <= 1:
            raise FglauditError(
                f"participation is a share of the users in (0, 1]; got {self.participation:g}; use 1 for all"
            )

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """The latents of one user, at most once a round (twice with ``evaluation: clean``)."""
        times = self.rounds * (2 if self.evaluation == "clean" else 1)
        why = (
            "a latent moves with the features as far as the user's trained weights let it; clip the latents themselves"
        )
        return (Release(Latents, times, None, "node", covers_training=True, why=why, one_message=True),)

    def structure(self, graph: FederatedGraph) -> Structure:
        return super().structure(graph).replace(Training, participation=self.participation)

    def readers(self) -> Mapping[type[Payload], str]:
        return {**super().readers(), ModelUpdate: "the server itself draws it, and nobody sends another"}

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        start, sampling = split(rng, "weights"), split(rng, "participation")
        x, first, server, masks = self.parties(graph, channel, start, rng, device)
        entries = Entries.of(x)
        users = UserWeights(entries, self.first_rows(first, entries, channel, start), self.stepping())
        everyone = torch.arange(graph.num_nodes)
        held = x.new_zeros(graph.num_nodes, self.model().dimensions)
        tested = held.clone()
        for round in range(1, self.rounds + 1):
            chosen = sample_clients(everyone, self.participation, sampling)
            at = chosen.to(device)
            values = entries.dropped(self.feature_dropout, masks)
            held[at] = send_latents(channel, round, users.latents(values)[at], chosen)
            gradients = torch.zeros_like(held)
            gradients[at] = send_gradients(channel, round, server.learn(held)[at], chosen)
            active = torch.zeros(len(held), dtype=torch.bool, device=device).index_fill(0, at, True)
            users.step(values, gradients, None if len(chosen) == len(everyone) else active)
            if self.evaluation == "clean":
                tested[at] = send_latents(channel, round, users.latents(entries.value)[at], chosen)
            server.test(tested if self.evaluation == "clean" else held)
            channel.round_done(round, self.rounds)
        trained = self.result(graph, x, server)
        return replace(trained, notes=(*trained.notes, *self.remarks(channel)))

    def remarks(self, channel: Channel) -> tuple[str, ...]:
        """Return what a reader must know of smoothing, or its absence, and the noise on the latents."""
        noisy = channel.noise(Latents) is not None
        return remarks(self.smoothing_hops, noisy, "latents", "nothing is smoothed away", example=8)

    def first_rows(self, first: Tensor, entries: Entries, channel: Channel, rng: torch.Generator) -> Tensor:
        """Return the users' first weights at the entries [e, D]: ``first`` [F, D] as received, or each user's own."""
        if self.initial_weights == "broadcast":
            received = send_model(channel, 0, first, entries.num_users)
            return received[entries.user, entries.column]
        bound = math.sqrt(6 / (first.shape[0] + self.hidden))  # that of ``first``, drawn only where it matters
        drawn = torch.rand(len(entries.value), first.shape[1], generator=rng, dtype=first.dtype)
        return ((drawn * 2 - 1) * bound).to(first.device)
