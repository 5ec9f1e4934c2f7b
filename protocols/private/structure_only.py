"""Structure only: no feature ever leaves a client (after FedStruct, Aliakbari, Ostman and Graell i Amat,
arXiv 2402.19163).

Every node has a public pseudo-random code, which all parties draw from the seed. Codes are propagated over the whole
graph for as many steps as the largest of ``hops``; the rows after each of ``hops`` steps say where in the graph a node
lies, and features stay at home: a node's input is these rows and what its own client knows of its features. The clients
train a linear classifier on it by federated averaging. With ``pseudo_labels`` training goes on for as many rounds, in
which validation nodes train too, towards the classes predicted for them (:mod:`fglaudit.federated.pseudo_labels`).

Who propagates: every client its own nodes. Before a step the owner of a node with a neighbour at another client sends
the node's row through the server to that neighbour's client (``HopSums``, :mod:`fglaudit.federated.hop_exchange`); the
first step needs no message, because codes are public. FedStruct shares the propagation matrix's blocks instead, once;
here what is sent are products with the codes.

What is observed: the server and neighbours see sums of public codes over neighbourhoods, which give away the edges
exactly where a neighbourhood is smaller than a code is wide (``code-edges``); the server sees every model. Features
reach others by ``ModelUpdate`` alone, for which nothing is promised: add a defense of the training.

Inputs: the rows of every number of hops at length ``1 / sqrt(their number)``, features at length ``home_weight``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Examples, Uploads
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.fedavg import averaged_models, trainers
from fglaudit.federated.home_head import HOME_HOPS, NO_FEATURES, AtHome, HomeHead, joined
from fglaudit.federated.hop_exchange import HopExchange
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.problem import check_trainable
from fglaudit.federated.pseudo_labels import LEFT_OUT, remarks, training, with_pseudo_labels
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.codes import public_codes
from fglaudit.payloads import HopSums, ModelUpdate, Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.structure import Codes, Models, Structure


@dataclass(frozen=True)
class StructureOnly(FederatedProtocol):
    """Public codes propagated over the whole graph, features at home; defaults chosen on Cora's validation nodes.

    Attributes:
        hops: after how many steps of propagation rows enter a node's input, ascending.
        width: numbers in a code.
        code_seed: of the codes, public; ``seed`` is taken for it.
        features_at_home: "own-row", "own-subgraph" or "none", see ``fglaudit.federated.home_head.HomeHead``.
        home_weight: length of the features in an input, beside length 1 of what was propagated.
        pseudo_labels: whether training goes on with validation nodes' rows, never with their labels.
        rounds, local_steps, learning_rate, weight_decay: of federated averaging, by SGD.
    """

    name: ClassVar[str] = "structure-only"
    shown: ClassVar[tuple[str, ...]] = ("hops", "features_at_home")
    also: ClassVar[Mapping[str, str]] = {"seed": "code_seed"}
    emits: ClassVar[tuple[type[Payload], ...]] = (HopSums, ModelUpdate)

    hops: tuple[int, ...] = (8, 16, 32)
    width: int = 512
    code_seed: int = 0
    features_at_home: AtHome = "own-row"
    home_weight: float = 1.5
    pseudo_labels: bool = False
    rounds: int = 30
    local_steps: int = 3
    learning_rate: float = 5.0
    weight_decay: float = 1e-3

    def __post_init__(self) -> None:
        check_hops(self.name, self.hops)
        require_least(self, width=1)
        self.head()

    def head(self) -> HomeHead:
        """Return the classifier."""
        return HomeHead(
            self.features_at_home,
            self.home_weight,
            self.rounds,
            self.local_steps,
            self.learning_rate,
            self.weight_decay,
        )

    @property
    def num_rounds(self) -> int:
        return self.rounds * (2 if self.pseudo_labels else 1)

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)

    def structure(self, graph: FederatedGraph) -> Structure:
        codes = Codes(self.width, self.code_seed, max(self.hops), self.hops)
        features_from = self.inputs(graph) - self.head().width(graph.num_features)
        return Structure((codes, Models("weights", features_from), self.head().averaging().training()))

    def layer_inputs(self, graph: FederatedGraph, clients: Sequence[ClientGraph]) -> tuple[Tensor, Tensor] | None:
        """The features in the training nodes' inputs, which the server sees in models, with ``pseudo_labels`` also the
        validation nodes', which later rounds read; None without any."""
        if self.features_at_home == NO_FEATURES:
            return None
        return self.head().training_rows(training(clients) if self.pseudo_labels else clients, graph.num_nodes)

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Codes are propagated over all edges."""
        return True

    def features_used(self, graph: FederatedGraph) -> bool:
        """They are part of a node's own input, if of any."""
        return self.features_at_home != NO_FEATURES

    def examples(self, graph: FederatedGraph) -> Examples | str:
        """A node's loss sees features of its own client's nodes alone, up to two steps away."""
        if self.pseudo_labels:
            return LEFT_OUT
        hops = HOME_HOPS[self.features_at_home]
        return node_examples(graph, passes=self.head().averaging().passes(), hops=hops, by_degree=hops > 0)

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return self.head().averaging().uploads(graph)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """Of models the server takes the mean."""
        layout = self.head().layout(self.inputs(graph), graph.num_classes)
        return averaged_models(layout, graph.num_clients, len(trainers(graph)), self.num_rounds)

    def readers(self) -> Mapping[type[Payload], str]:
        return {HopSums: "rows made of public codes are sent in the clear: they hold no feature"}

    def inputs(self, graph: FederatedGraph) -> int:
        """Return how many numbers a node's input has."""
        return len(self.hops) * self.width + self.head().width(graph.num_features)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        head, exchange = self.head(), HopExchange.of(edges, graph.num_clients)
        codes = public_codes(graph.num_nodes, self.width, self.code_seed).to(device)
        found = exchange.steps(codes, exchange.public(codes), self.hops, channel)
        inputs: Tensor = torch.cat([joined(found), head.home(clients, graph.num_nodes, device)], 1)
        classes, of = graph.num_classes, self.num_rounds
        trained = head.train(clients, edges, inputs, classes, channel, rng, of=of)
        if not self.pseudo_labels:
            return trained
        weight = trained.weights["layers.0.weight"].to(device)
        clients = with_pseudo_labels(clients, (inputs @ weight).argmax(1))
        later = head.train(clients, edges, inputs, classes, channel, rng, weight.flatten(), self.rounds, of)
        return replace(Trained.of_stages([trained, later]), notes=(*later.notes, *remarks(clients)))


def check_hops(protocol: str, hops: tuple[int, ...]) -> None:
    """Raise :class:`FglauditError` unless ``hops`` are whole numbers from 1, ascending."""
    if not hops or min(hops) < 1 or sorted(set(hops)) != list(hops):
        raise FglauditError(f"{protocol} needs hops of at least 1, ascending; got {list(hops)}; use e.g. [8, 16, 32]")
