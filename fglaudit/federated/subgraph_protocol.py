"""What protocols share whose clients train on padded subgraphs: fields, settings, set-up, federated averaging."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fglaudit.context import Examples, Release, Uploads
from fglaudit.errors import require_least
from fglaudit.federated.fedavg import largest_share
from fglaudit.federated.subgraph_inputs import SubgraphInputs, check_subgraphs
from fglaudit.federated.subgraph_training import Masking, SubgraphModels, SubgraphSettings, Surroundings
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol
from fglaudit.nn.weights import Layout
from fglaudit.payloads import GlobalNodes, ModelUpdate
from fglaudit.rng import moved
from fglaudit.structure import Models, Structure, Training


@dataclass(frozen=True)
class SubgraphProtocol(FederatedProtocol):
    """Common fields; defaults are FedGT's settings for all methods on Cora, CiteSeer and PubMed.

    Attributes:
        layers, hidden: of the network.
        rounds: of federated training.
        local_epochs, batch_size, learning_rate, weight_decay, dropout: see
            :class:`fglaudit.federated.subgraph_training.SubgraphSettings`.
    """

    layers: int = 2
    hidden: int = 128
    rounds: int = 100
    local_epochs: int = 1
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    dropout: float = 0.5

    def __post_init__(self) -> None:
        require_least(self, rounds=1)
        self.layout(1, 1)
        self.settings()

    def check(self, graph: FederatedGraph) -> None:
        check_subgraphs(self.name, graph)

    def examples(self, graph: FederatedGraph) -> Examples | str:
        return f"what a node of {self.name} attends to depends on far more of its client than some hops around it"

    def uploads(self, graph: FederatedGraph) -> Uploads | str:
        if ModelUpdate not in type(self).emits:
            return super().uploads(graph)
        # The server adds changes to its own model, which differs from the model it sends if a defense changes that.
        return replace(largest_share(graph, 1.0, "train-nodes"), changes=True, mean=False, mean_rounds=self.rounds)

    def structure(self, graph: FederatedGraph) -> Structure:
        local = self.settings()
        training = Training(
            optimizer="adam",
            learning_rate=local.learning_rate,
            weight_decay=local.weight_decay,
            dropout=local.dropout,
            local_steps=0,
            keep_optimizer=local.keep_optimizer,
        )
        return Structure((Models("changes"), training) if ModelUpdate in type(self).emits else (training,))

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """Every upload of every round; none has a known bound on its sensitivity to one node's features."""
        why = "no bound is known on what a node's features do to trained weights and centroids"
        kinds = (kind for kind in (GlobalNodes, ModelUpdate) if kind in type(self).emits)
        return tuple(
            Release(kind, self.rounds, None, "client", covers_training=False, why=why, one_message=True)
            for kind in kinds
        )

    @property
    def positions(self) -> int:
        """Dimensions of the Laplacian positional encoding, which is appended to the features."""
        return 0

    @abstractmethod
    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        """Return the shapes of the weights of one model; raise :class:`FglauditError` for an impossible network."""

    def shared(self, num_inputs: int, num_classes: int) -> Layout:
        """Return the shapes of the weights that clients send, which are the first ones of :meth:`layout`. Default: all;
        the others stay at home."""
        return self.layout(num_inputs, num_classes)

    @abstractmethod
    def surroundings(
        self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, rng: torch.Generator
    ) -> Surroundings:
        """Return the nodes' neighbourhoods; ``rng`` chooses among nodes near them."""

    def masking(self, num_inputs: int, num_classes: int) -> Masking | None:
        """Return what the network uses in place of the weights that are trained. Default: the weights themselves."""
        return None

    def settings(self) -> SubgraphSettings:
        """Return how a client trains between two messages."""
        return SubgraphSettings(
            epochs=self.local_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            dropout=self.dropout,
        )

    def completed(
        self, clients: Sequence[ClientGraph], channel: Channel, rng: torch.Generator, device: torch.device
    ) -> Sequence[ClientGraph]:
        """Return the subgraphs that the clients train on, for which they may exchange messages. Default: their own."""
        return clients

    def clients(
        self,
        graph: FederatedGraph,
        channel: Channel,
        near: torch.Generator,
        training: torch.Generator,
        device: torch.device,
    ) -> SubgraphModels:
        """Return the K clients before the first round; their models [K, D] are still to be loaded.

        Args:
            near: chooses among nodes near others.
            training: draws batches, neighbours and dropout.
        """
        self.check(graph)
        held = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        clients = self.completed(held, channel, training, device)
        inputs = SubgraphInputs.of(clients, self.positions, device)
        layout = self.layout(graph.num_features + self.positions, graph.num_classes)
        draws = moved(training, device)
        near_nodes, update = self.surroundings(clients, inputs, near), channel.local_update()
        masking = self.masking(graph.num_features + self.positions, graph.num_classes)
        return SubgraphModels(near_nodes, self.settings(), inputs, layout, draws, update, masking)
