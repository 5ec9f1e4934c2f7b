"""Distributed GCN (Scardapane, Spinelli and Di Lorenzo 2020): one GCN, trained step by step over all clients' nodes.

Clients keep their own nodes and every edge with one of them. A neighbour at another client is a *copy*. Before training
owners send the feature rows of all copies. In every step they send the first layer's output of these nodes, and the
copies' holders send back the gradient of their losses with respect to it, so that every client has its share of the
gradient of the whole loss. Clients upload the weights after the step; their mean is one step of gradient descent on the
mean loss of all training nodes, as on one machine: without dropout the model equals that of ``gcn`` (a test says so).

What is observed: the rows of its nodes' neighbours reach a client in the clear (the attack ``raw-features``). Hidden
states of these neighbours are made of the rows two hops away (``hidden-state-rows``). Gradients come from the labels of
others' training nodes (``boundary-labels``). The server sees models alone.

Choices: two layers; how many training nodes all clients have together, by which each divides its loss, is public and
not recorded; messages go from client to client; a unit of a copy is dropped by its holder, apart from the
owner's own draw, so that what is sent serves tests too. The model of a round is tested with the hidden states of the
next one, and the last model with a last exchange.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.context import Aggregate, Release, Uploads
from fglaudit.errors import FglauditError, require_least, require_shares
from fglaudit.federated.fedavg import average, averaged_models, broadcast, upload_models
from fglaudit.federated.neighborhood import KeptEdges, foreign_nodes_within
from fglaudit.federated.problem import check_trainable, gather_features
from fglaudit.federated.training import accuracies
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import Layout, gcn_layout, glorot, unflatten
from fglaudit.payloads import SERVER, HiddenGradients, HiddenStates, ModelUpdate, Payload, RawFeatures
from fglaudit.protocols.distributed_gcn.boundary import Boundary
from fglaudit.protocols.distributed_gcn.client_rows import ClientRows
from fglaudit.rng import moved, split
from fglaudit.structure import BoundaryRows, Convolutions, Models, Structure
from fglaudit.view import Observer


@dataclass(frozen=True)
class DistributedGCN(FederatedProtocol):
    """Distributed GCN; a round is one gradient step.

    Attributes:
        rounds: steps.
        hidden, learning_rate, weight_decay, dropout: as in :class:`fglaudit.protocols.fedgcn.fedgcn.FedGCN`.
    """

    name: ClassVar[str] = "distributed-gcn"
    emits: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, HiddenStates, HiddenGradients, ModelUpdate)

    hidden: int = 16
    rounds: int = 300
    learning_rate: float = 0.5
    weight_decay: float = 5e-4
    dropout: float = 0.5

    def __post_init__(self) -> None:
        require_least(self, hidden=1, rounds=1)
        for field in ("learning_rate", "weight_decay"):
            value = getattr(self, field)
            if not (value >= 0 and math.isfinite(value)):
                raise FglauditError(f"{field} must be finite and not negative; got {value:g}; use 0 or more")
        require_shares(self, "dropout")

    @property
    def sampling_rate(self) -> float:
        """Share of the copies that take part in a step."""
        return 1.0

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)

    def structure(self, graph: FederatedGraph) -> Structure:
        return Structure((BoundaryRows(self.sampling_rate, self.dropout), Models("weights"), Convolutions()))

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        why = "rows go to every client with a neighbour, and no bound is known on what they do to hidden states"
        times = {RawFeatures: 1, HiddenStates: self.rounds + 1, HiddenGradients: self.rounds, ModelUpdate: self.rounds}
        return tuple(Release(kind, n, None, "client", covers_training=False, why=why) for kind, n in times.items())

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Rows of neighbours at other clients are sent in every layer."""
        return True

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return Uploads(graph.num_clients, graph.num_clients, 1 / graph.num_clients)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        layout = gcn_layout(graph.num_features, self.hidden, graph.num_classes, 2)
        return averaged_models(layout, graph.num_clients, graph.num_clients, self.rounds)

    def readers(self) -> Mapping[type[Payload], str]:
        return dict.fromkeys(type(self).emits[:3], "it goes to other clients, who compute with it")

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Clients see sums over the neighbours of their neighbours; the server sees models, in which all take part."""
        if observer.wire or SERVER in observer.parties:
            return super().exposed(graph, observer)
        return foreign_nodes_within(graph, observer, 2)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        layout = gcn_layout(graph.num_features, self.hidden, graph.num_classes, 2)
        model = glorot(layout, split(rng, "weights")).to(device)
        sampling, dropout = split(rng, "boundary"), moved(split(rng, "dropout"), device)
        step = _Step(clients, graph.degrees(), channel, device)
        if self.sampling_rate == 1:
            step.send_features(torch.ones(len(step.boundary.node), dtype=torch.bool), 0)
        received, correct = broadcast(channel, 0, model, len(clients)), []
        everyone = torch.ones(len(step.boundary.node), dtype=torch.bool)
        for round in range(1, self.rounds + 1):
            used = torch.rand(len(everyone), generator=sampling) < self.sampling_rate
            step.exchange(received, layout, used, self.sampling_rate, round)
            if round > 1:
                correct.append(step.hits())
            gradient = step.gradient(self.dropout, dropout, round)
            received = received - self.learning_rate * (gradient + self.weight_decay * received)
            uploads = upload_models(channel, round, torch.arange(len(clients)), received)
            received = broadcast(channel, round, average(uploads), len(clients))
            channel.round_done(round, self.rounds)
        step.exchange(received, layout, everyone, 1.0, self.rounds + 1)
        correct.append(step.hits())
        accuracy, accuracy_global = accuracies(correct, torch.tensor([int(c.test.sum().item()) for c in clients]))
        final = {name: weight.squeeze(0).cpu() for name, weight in unflatten(received[:1], layout).items()}
        return Trained(accuracy, accuracy_global, final, layout)


class _Step:
    """All clients' rows, and what they hold of others' in the current step.

    Args:
        degrees: in the whole graph [N].
    """

    def __init__(self, clients: Sequence[ClientGraph], degrees: Tensor, channel: Channel, device: torch.device) -> None:
        edges, count = KeptEdges.of(clients, degrees), len(degrees)
        self.channel = channel
        self.boundary = Boundary.of(edges, len(clients), device)
        self.own = ClientRows.of(edges.owner, len(clients), device)
        self.others = ClientRows.of(self.boundary.client, len(clients), device)
        self.x = gather_features(clients, count).float().to(device)
        self.inputs = self.own.blocks(self.x)
        labels = torch.zeros(count, dtype=torch.long)
        for client in clients:
            labels[client.nodes] = client.y
        self.train, self.test = (
            torch.cat([client.nodes[mask] for client, mask in zip(clients, masks, strict=True)])
            for masks in ([c.train for c in clients], [c.test for c in clients])
        )
        self.tester = edges.owner[self.test].to(device)
        self.train_labels, self.test_labels = labels[self.train].to(device), labels[self.test].to(device)
        self.train, self.test = self.train.to(device), self.test.to(device)
        self.copies: SparseMatrix | Tensor = self.x.new_zeros(len(self.boundary.node), self.x.shape[1])
        self.here = torch.zeros(len(self.boundary.node), dtype=torch.bool)
        """Copies whose feature rows arrived, on the host."""

    def send_features(self, used: Tensor, round: int) -> None:
        """Send the rows of those ``used`` copies [R] that are new."""
        sample = self.boundary.sample(used & ~self.here)
        self.here |= used
        if isinstance(self.copies, Tensor) and len(sample.nodes):
            self.copies += self.boundary.deliver(self.x, sample, RawFeatures, self.channel, round)
        if isinstance(self.copies, Tensor) and bool(self.here.all()):
            self.copies = self.others.blocks(self.copies)

    def exchange(self, models: Tensor, layout: Layout, used: Tensor, rate: float, round: int) -> None:
        """Compute the first layer of own nodes under ``models`` [K, D] and send what the ``used`` copies [R] need."""
        if isinstance(self.copies, Tensor):
            self.send_features(used, round)
        self.sample = self.boundary.sample(used)
        self.adjacency = self.boundary.propagation(self.sample, rate)
        self.first, self.second = (weight.detach().requires_grad_() for weight in unflatten(models, layout).values())
        self.before = self._layer(self.inputs, self.copies, self.first)
        self.states = functional.relu(self.before).detach()
        self.received = self.boundary.deliver(self.states, self.sample, HiddenStates, self.channel, round)

    def _layer(self, own: SparseMatrix | Tensor, copies: SparseMatrix | Tensor, weights: Tensor) -> Tensor:
        return self.adjacency @ torch.cat([self.own.product(own, weights), self.others.product(copies, weights)])

    def hits(self) -> Tensor:
        """Return how many test nodes of every client the models classify correctly [K]."""
        with torch.no_grad():
            logits = self._layer(self.states, self.received, self.second)[self.test]
        right = (logits.argmax(1) == self.test_labels).float()
        return right.new_zeros(self.boundary.num_clients).index_add_(0, self.tester, right)

    def gradient(self, dropout: float, rng: torch.Generator, round: int) -> Tensor:
        """Return every client's share [K, D] of the gradient of K times the mean loss of all training nodes."""
        own, copies = self.states.clone().requires_grad_(), self.received.clone().requires_grad_()
        logits = self._layer(_dropped(own, dropout, rng), _dropped(copies, dropout, rng), self.second)
        loss = self.boundary.num_clients * functional.cross_entropy(logits[self.train], self.train_labels)
        second, at_own, at_copies = torch.autograd.grad(loss, (self.second, own, copies))
        back = self.boundary.give_back(at_copies, self.sample, HiddenGradients, self.channel, round)
        (first,) = torch.autograd.grad(self.before, self.first, (at_own + back) * (self.before > 0))
        return torch.cat([first.flatten(1), second.flatten(1)], 1)


def _dropped(values: Tensor, share: float, rng: torch.Generator) -> Tensor:
    if share == 0:
        return values
    kept = torch.rand(values.shape, generator=rng, device=values.device) >= share
    return values * kept / (1 - share)
