"""Label propagation: labels travel, and nothing else does (Zhou et al., Learning with Local and Global Consistency,
NIPS 2003, the iteration of section 2).

A control: what the edges and the training labels alone reach, without a feature or a model. Every client sends the
labels of its training nodes once (``ClassReports``), as they are or by k-ary randomised response at ``label_epsilon``.
The server passes what arrived on to the clients of neighbours. Then rows of classes are propagated as
``structure-only`` propagates public codes: ``Z <- spread A Z + (1 - spread) Y`` over closed neighbourhoods, with the
labels as they arrived for ``Y`` (:mod:`fglaudit.federated.hop_exchange`). A node's largest entry is its class.

What is observed: the server sees every training label as it was sent, neighbours those of their remote neighbours; the
server sees the propagated rows of all nodes with cross-client edges, which tell of these edges. Features enter nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.hop_exchange import HopExchange
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.problem import check_trainable
from fglaudit.federated.sending import to_server
from fglaudit.federated.training import accuracies
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.responses import keep_probability, response_matrix
from fglaudit.payloads import ClassReports, HopSums, Payload
from fglaudit.privacy.accounting import check_budget
from fglaudit.rng import split
from fglaudit.structure import Reports, SpreadReports, Structure
from fglaudit.view import Observer


@dataclass(frozen=True)
class LabelPropagation(FederatedProtocol):
    """Training labels, propagated over the whole graph.

    Attributes:
        rounds: steps of propagation, one a round.
        spread: share of a node's row that comes from its neighbourhood, in (0, 1); the rest is its own label.
        label_epsilon: of a label's k-ary response; 0: labels are sent as they are.
    """

    name: ClassVar[str] = "label-propagation"
    shown: ClassVar[tuple[str, ...]] = ("label_epsilon",)
    emits: ClassVar[tuple[type[Payload], ...]] = (ClassReports, HopSums)

    rounds: int = 50
    spread: float = 0.9
    label_epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.label_epsilon:
            check_budget(self.label_epsilon, 0.0, pure=True)
        require_least(self, rounds=1)
        if not 0 < self.spread < 1:
            raise FglauditError(f"spread is a share strictly between 0 and 1; got {self.spread:g}; use e.g. 0.9")

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Reports are propagated over all edges."""
        return True

    def features_used(self, graph: FederatedGraph) -> bool:
        """Labels alone are sent and propagated."""
        return False

    def structure(self, graph: FederatedGraph) -> Structure:
        keep = keep_probability(self.label_epsilon, graph.num_classes) if self.label_epsilon else 1.0
        return Structure((Reports(graph.num_classes, "label", keep), SpreadReports(self.spread)))

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """No message is about features."""
        return torch.empty(0, dtype=torch.long)

    def readers(self) -> Mapping[type[Payload], str]:
        return {
            ClassReports: "labels are passed on as they arrived",
            HopSums: "rows made of labels are sent in the clear: they hold no feature",
        }

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        exchange = HopExchange.of(edges, graph.num_clients)
        trained = [client.train for client in clients]
        labels = send_labels(clients, trained, self.label_epsilon, graph, channel, split(rng, "labels")).to(device)
        rows, received = labels, exchange.pass_on(labels, channel, 0, HopSums)
        owner = torch.cat([torch.full_like(client.nodes, client.client) for client in clients])
        nodes, y = torch.cat([client.nodes for client in clients]), torch.cat([client.y for client in clients])
        tested = torch.cat([client.test for client in clients])
        owner, nodes, y = (part[tested].to(device) for part in (owner, nodes, y))
        correct, hit = [], torch.empty(0, dtype=torch.bool)
        for step in range(1, self.rounds + 1):
            rows = self.spread * (exchange.step @ torch.cat([rows, received])) + (1 - self.spread) * labels
            hit = rows[nodes].argmax(1) == y
            none = torch.zeros(graph.num_clients, device=device)
            correct.append(none.index_add_(0, owner, hit.float()))
            channel.round_done(step, self.rounds)
            if step < self.rounds:
                received = exchange.deliver(rows, channel, step)
        counts = torch.bincount(owner, minlength=graph.num_clients)
        accuracy, accuracy_global = accuracies(correct, counts)
        final = {"rows": rows.cpu()}  # there is no other model
        return Trained(accuracy, accuracy_global, final, notes=self.remarks(), right=hit.cpu())

    def remarks(self) -> tuple[str, ...]:
        """Return what a reader must know of the labels."""
        if not self.label_epsilon:
            return ("labels of training nodes are sent as they are",)
        return (f"labels of training nodes are sent by k-ary response at an epsilon of {self.label_epsilon:g}",)


def send_labels(
    clients: Sequence[ClientGraph],
    used: Sequence[Tensor],
    epsilon: float,
    graph: FederatedGraph,
    channel: Channel,
    rng: torch.Generator,
) -> Tensor:
    """Have every client send k-ary responses to the labels of its nodes ``used`` [n_k]; return what the server received
    [N, C], zeros for all others.

    Args:
        epsilon: of a response; 0: labels are sent as they are.
    """
    nodes = [client.nodes[mask] for client, mask in zip(clients, used, strict=True)]
    labels = torch.cat([client.y[mask] for client, mask in zip(clients, used, strict=True)])
    if epsilon and len(labels):
        labels = torch.multinomial(response_matrix(epsilon, graph.num_classes)[labels], 1, generator=rng).squeeze(1)
    senders, splits = torch.arange(len(clients)), torch.tensor([0, *map(len, nodes)]).cumsum(0)
    payload = ClassReports(torch.cat(nodes), one_hot(labels, graph.num_classes).float())
    arrived = to_server(channel, 0, senders, payload, splits)
    found = torch.zeros(graph.num_nodes, graph.num_classes)
    return found.index_add_(0, payload.nodes, arrived.values.cpu().float())
