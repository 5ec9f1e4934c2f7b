"""Protocols that get something from one party to another without a message to it, and one that does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.conformance.overlisted_rows import overlisted
from fglaudit.conformance.side_channels import KeptMessages
from fglaudit.conformance.unlisted_rows import unlisted
from fglaudit.context import Uploads
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload, RawFeatures
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.structure import Models, Structure
from fglaudit.testing import check_protocol, example_graph, record
from fglaudit.view import Observer


@dataclass(frozen=True)
class Averaged(FederatedProtocol):
    """Average linear classifiers of own rows, with one ``fault``."""

    name: ClassVar[str] = "averaged"
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)

    fault: str = "none"

    @property
    def num_rounds(self) -> int:
        return 3

    def structure(self, graph: FederatedGraph) -> Structure:
        return Structure((Models("weights"),))

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return Uploads(graph.num_clients, graph.num_clients, 1 / graph.num_clients)

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        return torch.empty(0, dtype=torch.long)

    def rows(self, graph: FederatedGraph, clients: list[ClientGraph], channel: Channel) -> list[Tensor]:
        own = [client.x.float() for client in clients]
        if self.fault == "whole graph":
            adjacent = torch.eye(graph.num_nodes)
            adjacent[graph.edge_index[0], graph.edge_index[1]] = 1
            return [(adjacent @ graph.x.float())[client.nodes] for client in clients]
        if self.fault == "means of all":
            return [rows - graph.x.float().mean(0) for rows in own]
        return own

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        rows, layout = self.rows(graph, clients, channel), {"weight": (graph.num_features, graph.num_classes)}
        everybody = torch.arange(len(clients))
        server = everybody.clone() if self.fault == "to oneself" else torch.full_like(everybody, SERVER)
        model, accuracies, overall = torch.zeros(graph.num_features * graph.num_classes), [], []
        for round in range(1, self.num_rounds + 1):
            received = model.expand(len(clients), -1).clone()
            if self.fault != "no way back":
                down = MessageBatch(round, server, everybody, ModelUpdate(received))
                received = channel.send(down).tensors()["vector"]
            local = [
                self.step(x, client, weight.view(layout["weight"]))
                for x, client, weight in zip(rows, clients, received, strict=True)
            ]
            receivers = everybody.roll(1) if self.fault == "ring" else server
            up = MessageBatch(round, everybody, receivers, ModelUpdate(torch.stack(local)))
            model = channel.send(up).tensors()["vector"].mean(0)
            if self.fault == "server's rows":
                model = model + graph.x.float().mean()
            hits = [
                ((x @ model.view(layout["weight"])).argmax(1) == c.y)[c.test].float()
                for x, c in zip(rows, clients, strict=True)
            ]
            accuracies.append(torch.stack([hit.mean() for hit in hits]))
            overall.append(torch.cat(hits).mean())
            channel.round_done(round, self.num_rounds)
        weights = {"weight": model}
        if self.fault == "rows beside weights":
            weights["rows"] = graph.x.float()
        if self.fault == "last model of all rows":
            everything = torch.cat([client.x[client.train].float() for client in clients])
            weights["weight"] = model + everything.mean()
        if self.fault == "accuracy of others' rows":
            accuracies[-1] = torch.full_like(accuracies[-1], graph.x.float().mean().item())
        return Trained(torch.stack(accuracies), torch.stack(overall), weights, layout)

    def step(self, x: Tensor, client: ClientGraph, weight: Tensor) -> Tensor:
        """Return the weights [F C] after a step on the training rows."""
        used = torch.ones_like(client.train) if self.fault == "test labels" else client.train
        wrong = (x[used] @ weight).softmax(1) - one_hot(client.y[used], weight.shape[1])
        return (weight - 0.5 * x[used].T @ wrong / max(1, int(used.sum()))).flatten()


def test_what_is_sent_to_who_uses_it_is_no_fault() -> None:
    check_protocol(Averaged(), example_graph())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("whole graph", "rows of client 0 change vector of ModelUpdate that client 1 sends"),
        ("means of all", "rows of client 0 change vector of ModelUpdate that client 1 sends"),
        ("server's rows", "rows of client 0 change vector of ModelUpdate that the server sends"),
        ("test labels", "labels of test nodes change vector of ModelUpdate"),
        ("no way back", "what client 0 sends to the server changes vector of ModelUpdate that client 1 sends"),
        ("ring", "who never received it"),
        ("to oneself", "client 2 sends to client 2"),
        ("rows beside weights", "rows of client 0 change weight 'rows' that training ends with"),
        ("last model of all rows", "rows of client 0 change weight 'weight' that training ends with"),
        ("accuracy of others' rows", "rows of client 0 change accuracies of other clients"),
    ],
)
def test_what_gets_there_without_a_message_is_named(fault: str, words: str) -> None:
    with pytest.raises(AssertionError, match=r"goes through the channel") as told:
        check_protocol(Averaged(fault), example_graph())
    assert words in str(told.value)


@dataclass(frozen=True)
class Unexposed(FedGCN):
    """Says that nobody's rows reach anybody."""

    name: ClassVar[str] = "unexposed"

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        return torch.empty(0, dtype=torch.long)


@dataclass(frozen=True)
class Silent(Averaged):
    """Sends rows, and states nothing."""

    name: ClassVar[str] = "silent"
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate, RawFeatures)

    def uploads(self, graph: FederatedGraph) -> str:  # type: ignore[override]
        return "not said"

    def rows(self, graph: FederatedGraph, clients: list[ClientGraph], channel: Channel) -> list[Tensor]:
        sizes = [len(client.nodes) for client in clients]
        senders, splits = torch.arange(len(clients)), torch.tensor([0, *sizes]).cumsum(0)
        payload = RawFeatures(torch.cat([c.nodes for c in clients]), torch.cat([c.x.float() for c in clients]))
        batch = MessageBatch(0, senders, torch.full_like(senders, SERVER), payload, splits)
        return list(torch.split(channel.send(batch).tensors()["x"], sizes))


@pytest.mark.parametrize("protocol", [Unexposed(hops=1, rounds=3), Silent()])
def test_who_receives_rows_is_told_that_they_reach_it(protocol: FederatedProtocol) -> None:
    with pytest.raises(AssertionError, match=r"`exposed` lists all nodes.* the server receives"):
        check_protocol(protocol, example_graph())


@dataclass(frozen=True)
class Underlisted(FedGCN):
    """Lists fewer nodes than it sends rows of."""

    name: ClassVar[str] = "underlisted"

    to: str = "everybody"

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        listed = super().exposed(graph, observer)
        if self.to == "everybody":
            return listed[::3]
        spared = observer.wire if self.to == "the wire" else not observer.topology
        return listed[:0] if spared else listed


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("everybody", "server sees NeighborSums made of rows of some of the 40 nodes"),
        ("the wire", "wire sees NeighborSums"),
        ("who knows no edge", "server sees NeighborSums made of rows of some of the 60 nodes"),
    ],
)
def test_rows_that_reach_somebody_and_are_not_listed_are_named(to: str, words: str) -> None:
    protocol, first = Underlisted(hops=1, rounds=1, to=to), KeptMessages()
    record(protocol, tamper=first.keep)
    assert words in unlisted(protocol, example_graph(), first)


def test_all_that_are_listed_are_enough() -> None:
    protocol, first = FedGCN(hops=2, rounds=1), KeptMessages()
    record(protocol, tamper=first.keep)
    assert unlisted(protocol, example_graph(), first) == ""


@dataclass(frozen=True)
class Everybody(FedGCN):
    """Lists everybody's nodes, as the default does, where sums of neighbours' rows alone are sent."""

    name: ClassVar[str] = "everybody"

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        return FederatedProtocol.exposed(self, graph, observer)


def test_nodes_that_reach_nobody_and_are_listed_are_named() -> None:
    """Of a hundredth of the nodes all rows are an advantage of 0.01, which reads "held"."""
    protocol, first = Everybody(hops=1, rounds=1), KeptMessages()
    record(protocol, tamper=first.keep)
    assert "client:0 receives nothing made of rows of 20 of the 40" in overlisted(protocol, example_graph(), first)
    assert overlisted(FedGCN(hops=1, rounds=1), example_graph(), first) == ""
