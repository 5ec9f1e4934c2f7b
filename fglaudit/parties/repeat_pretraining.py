"""A server that has pre-training repeated without one client at a time, which it says dropped out or left.

FedGCN's clients send their parts of the sums once. Here they are asked again, as after a crash or a late client: in
every repetition all send but one, and all receive the sums of those who sent. The sum without client m and the sum with
it differ by ``P[m, i]``, the part that secure aggregation hides; the attack ``differenced-sums`` reads it. Degrees, and
so the weights of the sums, stay those that were announced at first. Models are trained on the first sums.

A defense sees every repetition as what it is, another message: noise is drawn afresh, and counted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from fglaudit.errors import require_least
from fglaudit.federated.neighbor_sums import add_messages
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Trained
from fglaudit.parties.base import Behaviour, Conduct
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN


@dataclass(frozen=True)
class RepeatPretraining(Behaviour):
    """The server repeats pre-training, each time without another client.

    Attributes:
        clients: how many are left out, one after the other, from client 0 on.
    """

    name: ClassVar[str] = "repeat-pretraining"
    shown: ClassVar[tuple[str, ...]] = ("clients",)

    clients: int = 1

    def __post_init__(self) -> None:
        require_least(self, clients=1)

    @property
    def least_clients(self) -> int:
        return self.clients

    def unsupported(self, protocol: FederatedProtocol, graph: FederatedGraph) -> str | None:
        if not isinstance(protocol, FedGCN) or protocol.hops == 0:
            return f"repeat-pretraining repeats FedGCN's sums; {protocol.name} sends none before training"
        if self.clients > graph.num_clients:
            return f"repeat-pretraining leaves out {self.clients} clients in turn; there are {graph.num_clients}"
        return None

    def bind(self, protocol: FederatedProtocol, graph: FederatedGraph, rng: torch.Generator) -> Conduct:
        return _Repeating(self.clients, graph.num_nodes)


@dataclass
class _Repeating(Conduct):
    clients: int
    num_nodes: int
    uploads: list[MessageBatch] = field(default_factory=list)
    deliveries: list[MessageBatch] = field(default_factory=list)

    def goes_on(self, batch: MessageBatch, arrived: Payload, channel: Any) -> Payload:
        if isinstance(batch.payload, NeighborSums):
            from_clients = bool((batch.senders != SERVER).all())
            (self.uploads if from_clients else self.deliveries).append(_copy(batch, values=from_clients))
        elif self.deliveries:  # pre-training is over
            for client in range(self.clients):
                channel.session.leave_out((client,))
                self._repeat(client, channel)
            channel.session.leave_out(())
            self.uploads.clear()
            self.deliveries.clear()
        return arrived

    def _repeat(self, client: int, channel: Any) -> None:
        """Send the parts again without those of ``client``, and their sums to everybody."""
        total = None
        for batch in self.uploads:
            there = batch.senders != client
            if not bool(there.any()):
                continue
            again = dataclasses.replace(_copy(batch, values=True), round=client + 1).select(there)
            arrived = channel.send(again)
            assert isinstance(arrived, NeighborSums)
            total = add_messages(total, arrived.nodes, arrived.sums, self.num_nodes)
        if total is None:
            return
        for batch in self.deliveries:
            assert isinstance(batch.payload, NeighborSums)
            payload = NeighborSums(batch.payload.nodes, total[batch.payload.nodes].float())
            channel.send(dataclasses.replace(batch, round=client + 1, payload=payload))

    def remarks(self, trained: Trained) -> tuple[str, ...]:
        return (
            f"repeat-pretraining: clients are asked for their sums {self.clients} times more, each time without"
            " another one, and receive other sums than before; the one that is left out sees that it is not asked,"
            " but not why",
        )


def _copy(batch: MessageBatch, *, values: bool) -> MessageBatch:
    """Return ``batch`` with sums in memory of its own, or without them."""
    payload = batch.payload
    assert isinstance(payload, NeighborSums)
    sums = payload.sums.clone() if values else torch.empty(len(payload.nodes), 0)
    return dataclasses.replace(batch, payload=NeighborSums(payload.nodes, sums))
