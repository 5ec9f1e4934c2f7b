"""CNFGNN (Meng, Rambhatla and Liu, KDD 2021) as nFedGNN's paper adapts it: split learning with averaged user weights.

Section 4.1 of nFedGNN, "Baseline". As in nFedGNN the users upload latents and get the gradients of the server's loss;
then every user steps from the common first-layer weights W, uploads the result, and the server sends everybody the mean
as the next W. There is no regulariser: users are coupled by the shared weights.

What is observed: the server sees all latents and how every user's step changed W. The gradient is ``x_i g_i'`` and the
server computed g_i itself, so a plain gradient step reveals ``x_i``, and a step of Adam reveals its signs.

How all users are computed at once: the rows of ``W_i`` where ``x_i`` is zero have no gradient but weight decay, so they
and their optimizer states are equal for all users, and the mean needs only the touched rows ``[e, D]`` and one [F, D].
Whole models are formed only for a recorder or a defense that needs the messages (rule 2); otherwise only their sizes
are announced, so that their bytes are still counted.

Choices where the papers are silent:

* Every user keeps its optimizer over the rounds, as in nFedGNN, though it continues from weights that are not its own;
  ``keep_optimizer: false`` starts afresh every round, and Adam's step is then ``g / (|g| + eps)``, nearly the sign.
* Every user takes part in every round, and the mean is unweighted. The first weights are always common.
* The rest is as in ``nfedgnn``. The paper gives CNFGNN no settings of its own; the defaults are nFedGNN's. They do not
  suit it: Adam moves a weight by about the learning rate however small its gradient is, so weight decay, the only
  gradient of a user far from labels, counts as much as a gradient of the loss. Without weight decay its accuracy is
  much higher, on Cora and CiteSeer higher than nFedGNN's (``fglaudit reproduce nfedgnn-figure4`` has both).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Release, Uploads
from fglaudit.errors import FglauditError
from fglaudit.federated.fedavg import averaged_models, broadcast
from fglaudit.federated.node_progress import Choice
from fglaudit.federated.sending import to_server
from fglaudit.federated.training import Optimizer
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.payloads import LatentGradients, Latents, ModelUpdate, Payload, is_repeated
from fglaudit.protocols.nfedgnn.split_training import (
    Loss,
    Split,
    SplitProtocol,
    first_layer,
    send_gradients,
    send_latents,
    send_model,
)
from fglaudit.protocols.nfedgnn.user_weights import Entries, UserWeights
from fglaudit.rng import split
from fglaudit.structure import Latent, Models, Structure, Training

BUCKET = 2**26
"""Numbers in one batch of uploaded models (256 MiB in float32)."""


@dataclass(frozen=True)
class CNFGNN(SplitProtocol):
    """CNFGNN; fields as in :class:`fglaudit.protocols.nfedgnn.nfedgnn.NFedGNN`, and ``keep_optimizer``."""

    name: ClassVar[str] = "cnfgnn"
    shown: ClassVar[tuple[str, ...]] = ("split", "optimizer")
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate, Latents, LatentGradients)

    split: Split = "gcn"
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
    keep_optimizer: bool = True

    def structure(self, graph: FederatedGraph) -> Structure:
        stated = super().structure(graph).replace(Latent, goes_on_from="common")
        stated = stated.replace(Training, keep_optimizer=self.keep_optimizer)
        return Structure((*stated.statements, Models("weights")))

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """Latents and weights of one user, once a round each; noise on one of them does not cover the other."""
        why = "latents and weights move with the features as far as trained weights and the server's gradients let them"
        return tuple(
            Release(kind, self.rounds, None, "node", covers_training=False, why=why, one_message=True)
            for kind in (Latents, ModelUpdate)
        )

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return Uploads(graph.num_clients, graph.num_clients, 1 / graph.num_clients)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The weights, of which the server takes the mean."""
        layout = first_layer(self.model().layout(graph.num_features, graph.num_classes))
        return averaged_models(layout, graph.num_nodes, graph.num_nodes, self.rounds)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        x, first, server, masks = self.parties(graph, channel, split(rng, "weights"), rng, device)
        entries = Entries.of(x)
        everyone = torch.arange(graph.num_nodes)
        weights = common(send_model(channel, 0, first, graph.num_nodes))
        users = idle = None
        for round in range(1, self.rounds + 1):
            if users is None or idle is None or not self.keep_optimizer:
                users = UserWeights(entries, weights[entries.column], self.stepping())
                idle = UserWeights(Entries.idle(x), weights.clone(), self.stepping())
            users.rows, idle.rows = weights[entries.column], weights.clone()
            values = entries.dropped(self.feature_dropout, masks)
            held = send_latents(channel, round, users.latents(values), everyone)
            users.step(values, send_gradients(channel, round, server.learn(held), everyone))
            idle.step(idle.entries.value, torch.zeros_like(held[:1]))
            mean = self.exchange(channel, round, users, idle.rows)
            weights = common(broadcast(channel, round, mean, graph.num_nodes).view(-1, *first.shape))
            server.test(held)
            channel.round_done(round, self.rounds)
        return self.result(graph, x, server)

    def exchange(self, channel: Channel, round: int, users: UserWeights, idle: Tensor) -> Tensor:
        """Have every user upload its weights; return their mean [F D].

        Args:
            users: the touched rows after the step.
            idle: the rows [F, D] of a user that touches none of them, after the step.
        """
        entries, everyone = users.entries, torch.arange(users.entries.num_users)
        if channel.wants(ModelUpdate, round):
            total: Tensor | None = None
            size = max(1, BUCKET // idle.numel())
            for low in range(0, len(everyone), size):
                part = everyone[low : low + size]
                payload = ModelUpdate(uploads(users, idle, low, len(part)).flatten(1))
                arrived = to_server(channel, round, part, payload)
                more = arrived.vector.sum(0, dtype=torch.float64)
                total = more if total is None else total.add_(more)
            assert total is not None
            return (total / len(everyone)).to(idle.dtype)
        announced = ModelUpdate(idle.new_zeros(1, 1).expand(len(everyone), idle.numel()))
        to_server(channel, round, everyone, announced)
        touched = torch.zeros_like(idle).index_add_(0, entries.column, users.rows)
        count = torch.bincount(entries.column, minlength=len(idle)).to(idle).unsqueeze(1)
        return (idle + (touched - count * idle) / len(everyone)).flatten()


def uploads(users: UserWeights, idle: Tensor, low: int, count: int) -> Tensor:
    """Return the whole weights [count, F, D] of the users from ``low`` on."""
    entries = users.entries
    mine = slice(int(entries.start[low].item()), int(entries.start[low + count].item()))
    whole = idle.repeat(count, 1, 1)
    whole[entries.user[mine] - low, entries.column[mine]] = users.rows[mine]
    return whole


def common(received: Tensor) -> Tensor:
    """Return the weights [F, D] that all users received, from ``received`` [N, F, D].

    Raises:
        FglauditError: if a defense made them differ.
    """
    if not is_repeated(received) and not torch.equal(received, received[:1].expand_as(received)):
        raise FglauditError(
            "cnfgnn's users go on from common weights; the defense changed them for each user; use one that leaves the"
            " server's messages as they are"
        )
    return received[0]
