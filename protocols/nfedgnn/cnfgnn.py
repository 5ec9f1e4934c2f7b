"""CNFGNN as nFedGNN's paper adapts it (Meng, Rambhatla and Liu, KDD 2021): split learning whose users also share their
weights.

Section 4.1 of nFedGNN, "Baseline". As in nFedGNN the users upload latents and get the gradients of the server's loss;
then every user steps from the common first-layer weights W, uploads the result, and the server sends everybody the mean
as the next W. There is no regulariser: the shared weights are what ties the users together.

What is observed: the server sees, beside all latents, what every user's step did to W. The gradient is ``x_i g_i'`` and
the server computed g_i itself, so a plain gradient step shows ``x_i`` outright, and a step of Adam its signs.

How all users are computed at once: the rows of ``W_i`` where ``x_i`` is zero have no gradient but weight decay, so they
and the memory of their optimizers are equal for all users, and the mean needs only the touched rows, ``[e, D]``, beside
one [F, D]. Whole models are put together only for a recorder or a defense that wants the messages (rule 2); otherwise
they are announced by their size, so that their bytes are counted all the same.

Choices where the papers are silent:

* Every user keeps its optimizer over the rounds, as in nFedGNN, though the weights it goes on from are not its own;
  ``keep_optimizer: false`` starts afresh every round, and Adam's step is then ``g / (|g| + eps)``, nearly the sign.
* Every user takes part in every round, and the mean is unweighted. The first weights are always common.
* The rest is as in :mod:`nfedgnn`. The paper gives CNFGNN no settings of its own; the defaults are nFedGNN's.
  They do not suit it: Adam moves a weight by about the learning rate however small its gradient, and weight decay
  alone, which is all that a user far from labels has, then counts as much as a real gradient. Without weight decay it
  is far stronger, on Cora and CiteSeer stronger than nFedGNN itself (``bench/nfedgnn.py`` has both).
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
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.payloads import SERVER, LatentGradients, Latents, MessageBatch, ModelUpdate, Payload, is_repeated
from fglaudit.protocols.nfedgnn.split_training import (
    Server,
    ServerSettings,
    SplitModel,
    check_share,
    check_users,
    empty_rows_note,
    first_layer,
    prepared_features,
    send_gradients,
    send_latents,
    send_model,
    server_labels,
)
from fglaudit.protocols.nfedgnn.user_weights import Entries, Stepping, UserWeights
from fglaudit.rng import split
from fglaudit.view import Observer

BUCKET = 2**26
"""Numbers in one batch of uploaded models (256 MiB in float32)."""


@dataclass(frozen=True)
class CNFGNN(FederatedProtocol):
    """CNFGNN; fields as in :class:`NFedGNN`, and ``keep_optimizer``, see above."""

    name: ClassVar[str] = "cnfgnn"
    shown: ClassVar[tuple[str, ...]] = ("split", "optimizer")
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate, Latents, LatentGradients)

    split: str = "gcn"
    hidden: int = 16
    heads: int = 8
    rounds: int = 200
    optimizer: str = "adam"
    learning_rate: float = 0.1
    server_optimizer: str = "adam"
    server_learning_rate: float = 0.1
    weight_decay: float = 5e-4
    dropout: float = 0.5
    feature_dropout: float = 0.0
    loss: str = "mean"
    choice: str = "last"
    keep_optimizer: bool = True

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise FglauditError(f"cnfgnn needs rounds >= 1; got {self.rounds}; raise it")
        check_share("feature_dropout", self.feature_dropout)
        self.model()
        self.stepping()
        self.server_settings()

    def model(self) -> SplitModel:
        return SplitModel(self.split, self.hidden, self.heads)

    def stepping(self) -> Stepping:
        return Stepping(self.optimizer, self.learning_rate, self.weight_decay)

    def server_settings(self) -> ServerSettings:
        stepping = Stepping(self.server_optimizer, self.server_learning_rate, self.weight_decay)
        return ServerSettings(stepping, self.dropout, 0.0, self.loss, self.choice)

    @property
    def num_rounds(self) -> int:
        return self.rounds

    def check(self, graph: FederatedGraph) -> None:
        check_users(self.name, graph, self.model().dimensions)

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """Latents and weights of one user, once a round each; noise on one of them does not cover the other."""
        why = "latents and weights move with the features as far as trained weights and the server's gradients let them"
        return tuple(
            Release(kind, self.rounds, None, "node", covers_training=False, why=why, one_message=True)
            for kind in (Latents, ModelUpdate)
        )

    def examples(self, graph: FederatedGraph) -> str:
        return (
            "cnfgnn's users hold no losses: the server computes the one loss from latents that users send every round"
        )

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return Uploads(graph.num_clients, graph.num_clients, 1 / graph.num_clients)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The weights, of which the server takes the mean."""
        layout = first_layer(self.model().layout(graph.num_features, graph.num_classes))
        return averaged_models(layout, graph.num_nodes, graph.num_nodes, self.rounds)

    def readers(self) -> Mapping[type[Payload], str]:
        return {Latents: "the server trains its layers on them", LatentGradients: "the server itself computes them"}

    def labelled(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """The training nodes, whose labels the server has."""
        return server_labels(graph, observer)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        start = split(rng, "weights")
        masks, server_masks = (
            torch.Generator(device).manual_seed(split(rng, p).initial_seed()) for p in ("features", "server")
        )
        x = prepared_features(graph, channel).to(device)
        entries = Entries.of(x)
        model = self.model()
        layout = model.layout(graph.num_features, graph.num_classes)
        (_, first), *rest = ((name, weight.to(x)) for name, weight in model.initial(layout, start).items())
        network = model.network(graph.edge_index.to(device), graph.num_nodes, x.dtype)
        server = Server(graph, network, dict(rest), self.server_settings(), server_masks)
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
        return server.result(first_layer(layout), empty_rows_note(self.name, x))

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
                arrived = channel.send(MessageBatch(round, part, torch.full_like(part, SERVER), payload))
                assert isinstance(arrived, ModelUpdate)
                more = arrived.vector.sum(0, dtype=torch.float64)
                total = more if total is None else total.add_(more)
            assert total is not None
            return (total / len(everyone)).to(idle.dtype)
        announced = ModelUpdate(idle.new_zeros(1, 1).expand(len(everyone), idle.numel()))
        channel.send(MessageBatch(round, everyone, torch.full_like(everyone, SERVER), announced))
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
