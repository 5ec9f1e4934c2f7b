"""What nFedGNN and CNFGNN share: the split model's settings, the server's training, the messages with users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError, require_known, require_least, require_shares
from fglaudit.federated.fedavg import broadcast
from fglaudit.federated.needs import refuse_memory
from fglaudit.federated.node_progress import CHOICES, Choice
from fglaudit.federated.problem import check_trainable
from fglaudit.federated.sending import from_server, to_server
from fglaudit.federated.training import Optimizer, accuracies
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.gat import GatShape, initial_model
from fglaudit.nn.weights import Layout, gcn_layout, glorot, unflatten
from fglaudit.payloads import SERVER, LatentGradients, Latents, Payload
from fglaudit.protocols.nfedgnn.split_server import Dropout, Laplacian, Network, Smoothed, SplitGat, SplitGcn
from fglaudit.protocols.nfedgnn.user_weights import Stepping
from fglaudit.rng import moved, split
from fglaudit.structure import Latent, Structure, Training
from fglaudit.view import Observer

Split = Literal["gcn", "gat"]
SPLITS: tuple[Split, ...] = get_args(Split)
Loss = Literal["mean", "sum"]
LOSSES: tuple[Loss, ...] = get_args(Loss)


@dataclass(frozen=True)
class SplitModel:
    """A two-layer GNN whose first weights are at the users.

    Attributes:
        split: "gcn" or "gat".
        hidden: units of the first layer, per head for "gat".
        heads: of the first layer, for "gat" alone.
    """

    split: str
    hidden: int
    heads: int

    def __post_init__(self) -> None:
        require_known(self, split=SPLITS)
        require_least(self, hidden=1, heads=1)

    @property
    def dimensions(self) -> int:
        """Numbers in one latent, D."""
        return self.hidden if self.split == "gcn" else self.heads * self.hidden

    def network(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Network:
        """Return the server's layers on the edges [2, E]."""
        if self.split == "gcn":
            return SplitGcn.on(edge_index, num_nodes, dtype)
        return SplitGat.on(edge_index, num_nodes)

    def layout(self, num_features: int, num_classes: int) -> Layout:
        """Shapes of all weights; the first, [F, D], is the users', the others are the server's."""
        if self.split == "gcn":
            return gcn_layout(num_features, self.hidden, num_classes, layers=2)
        return GatShape(2, self.heads, self.hidden, 1).layout(num_features, num_classes)

    def initial(self, layout: Layout, rng: torch.Generator) -> dict[str, Tensor]:
        """Draw one whole model (Glorot and Bengio 2010, per head)."""
        vector = glorot(layout, rng) if self.split == "gcn" else initial_model(layout, rng)
        return {name: weight.squeeze(0) for name, weight in unflatten(vector.unsqueeze(0), layout).items()}


def first_layer(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Return the part of the layout that is at the users: what a ``ModelUpdate`` holds."""
    name, shape = next(iter(layout.items()))
    return {name: shape}


def check_users(protocol: str, graph: FederatedGraph, dimensions: int) -> None:
    """Raise :class:`FglauditError` unless every node is one user with features and the server has training labels."""
    check_trainable(protocol, graph)
    sizes = torch.tensor([len(nodes) for nodes in graph.clients])
    if bool((sizes != 1).any()):
        k = int((sizes != 1).nonzero()[0].item())
        raise FglauditError(
            f"{protocol} has one user per node; client {k} holds {int(sizes[k].item())} nodes; use scheme: per-node"
        )
    if not torch.equal(torch.cat(graph.clients), torch.arange(graph.num_nodes)):
        raise FglauditError(
            f"{protocol} numbers users as nodes, so client k must hold node k of all {graph.num_nodes}; this partition"
            " orders or leaves out nodes; use scheme: per-node"
        )
    if graph.num_features == 0 or not bool(torch.isfinite(graph.x).all()):
        raise FglauditError(
            f"{protocol} needs users with finite features; {graph.name!r} has {graph.num_features} of them per user,"
            " some not finite; clean the data"
        )
    if dimensions > graph.num_features:
        raise FglauditError(
            f"a latent is a summary: it needs at most as many numbers as there are features; got {dimensions} for "
            f"{graph.num_features} features; lower hidden or heads"
        )
    unlabelled = torch.cat(graph.train) & (graph.y < 0)
    if bool(unlabelled.any()):
        node = int(unlabelled.nonzero()[0].item())
        raise FglauditError(
            f"{protocol}'s server needs the labels of its training nodes; node {node} has none; use another split"
        )


@dataclass(frozen=True)
class ServerSettings:
    """How the server learns.

    Attributes:
        stepping: its optimizer.
        dropout: share dropped between layers and, for "gat", of the attention weights.
        smoothness: weight of the graph-Laplacian regulariser, the paper's lambda.
        loss: cross-entropy over the training nodes: their "sum" (equation 3) or "mean".
        choice: the round that counts: "last", or "validation" for the one with the best validation accuracy.
    """

    stepping: Stepping
    dropout: float
    smoothness: float
    loss: str
    choice: str

    def __post_init__(self) -> None:
        require_least(self, smoothness=0)
        require_shares(self, "dropout")
        require_known(self, loss=LOSSES, choice=CHOICES)


class Server:
    """The server in training: topology, labels of the training nodes, its own layers."""

    def __init__(
        self,
        graph: FederatedGraph,
        network: Network,
        weights: Mapping[str, Tensor],
        settings: ServerSettings,
        rng: torch.Generator,
    ) -> None:
        """Set up the server.

        Args:
            weights: first weights of its layers by name, in the network's order; shapes as in
                :meth:`SplitModel.layout`.
            rng: draws the dropout, on the device of the weights.
        """
        first = next(iter(weights.values()))
        device, dtype = first.device, first.dtype
        self._network, self._settings = network, settings
        self._weights = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        self._optimizer = settings.stepping.torch_optimizer(list(self._weights.values()))
        self._dropout = Dropout(settings.dropout, rng)
        self._smooth = (
            Laplacian(graph.edge_index.to(device), graph.num_nodes, dtype) if settings.smoothness > 0 else None
        )
        self._train, self._val, self._test = (
            torch.cat(masks).to(device) for masks in (graph.train, graph.val, graph.test)
        )
        self._labels = graph.y.to(device)
        self._correct: list[Tensor] = []
        self._validation: list[Tensor] = []
        self._losses: list[Tensor] = []

    def learn(self, latents: Tensor) -> Tensor:
        """Take one step on the received ``latents`` [N, D]; return the loss's gradient by them, before the step."""
        received = latents.detach().requires_grad_()
        outputs = self._network.logits(received, list(self._weights.values()), self._dropout)
        loss = functional.cross_entropy(outputs[self._train], self._labels[self._train], reduction=self._settings.loss)
        if self._smooth is not None:
            loss = loss + self._settings.smoothness * self._smooth(received)
        self._losses.append(loss.detach())
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        assert received.grad is not None
        return received.grad

    @torch.no_grad()
    def test(self, latents: Tensor) -> None:
        """Note which nodes the current layers classify correctly from ``latents`` [N, D]."""
        outputs = self._network.logits(latents, list(self._weights.values()))
        right = outputs.argmax(1) == self._labels
        self._correct.append(right & self._test)
        self._validation.append((right & self._val).sum())

    def result(self, layout: Layout, notes: tuple[str, ...] = ()) -> Trained:
        """Return the outcome of the rounds tested so far; weights are those of the server alone, and the training loss
        is the one that it descended in each (equation 7, with dropout)."""
        accuracy, accuracy_global = accuracies(self._correct, self._test.long())
        counts = torch.stack(self._validation)
        best = int(counts.argmax().item()) if self._settings.choice == "validation" and bool(self._val.any()) else -1
        weights = {name: weight.detach().cpu() for name, weight in self._weights.items()}
        right = self._correct[best][self._test].cpu()
        losses = torch.stack(self._losses).cpu()
        series = {"training_loss": losses} if bool(torch.isfinite(losses).all()) else {}
        return Trained(accuracy, accuracy_global, weights, layout, round=best, notes=notes, series=series, right=right)


def send_latents(channel: Channel, round: int, latents: Tensor, users: Tensor) -> Tensor:
    """Have ``users`` [P] upload ``latents`` [P, D]; return what the server receives."""
    return to_server(channel, round, users, Latents(latents)).values


def send_gradients(channel: Channel, round: int, gradients: Tensor, users: Tensor) -> Tensor:
    """Have the server return ``gradients`` [P, D] to ``users`` [P]; return what they receive."""
    return from_server(channel, round, users, LatentGradients(gradients)).values


def send_model(channel: Channel, round: int, weight: Tensor, num_users: int) -> Tensor:
    """Have the server send ``weight`` [F, D] to everybody; return what each user receives [N, F, D]."""
    return broadcast(channel, round, weight.flatten(), num_users).view(num_users, *weight.shape)


class SplitProtocol(FederatedProtocol):
    """What nFedGNN and CNFGNN share.

    Subclasses are dataclasses that declare these fields themselves, because findings print fields in order of
    declaration. A field that a subclass does not declare keeps the value given here.
    """

    server_holds_edges: ClassVar[bool] = True

    split: Split
    smoothness: float = 0.0
    smoothing_hops: int = 0
    hidden: int
    heads: int
    rounds: int
    optimizer: Optimizer
    learning_rate: float
    server_optimizer: Optimizer
    server_learning_rate: float
    weight_decay: float
    dropout: float
    feature_dropout: float
    loss: Loss
    choice: Choice

    def __post_init__(self) -> None:
        require_least(self, rounds=1)
        require_shares(self, "feature_dropout")
        self.model()
        self.stepping()
        self.server_settings()

    def model(self) -> SplitModel:
        return SplitModel(self.split, self.hidden, self.heads)

    def stepping(self) -> Stepping:
        return Stepping(self.optimizer, self.learning_rate, self.weight_decay)

    def server_settings(self) -> ServerSettings:
        stepping = Stepping(self.server_optimizer, self.server_learning_rate, self.weight_decay)
        return ServerSettings(stepping, self.dropout, self.smoothness, self.loss, self.choice)

    def check(self, graph: FederatedGraph) -> None:
        check_users(self.name, graph, self.model().dimensions)
        weights = 4 * int(graph.x.count_nonzero().item()) * self.model().dimensions
        kept = 3 if self.optimizer == "adam" else 1  # Adam's two means
        refuse_memory(
            self.name,
            graph.name,
            kept * weights,
            "the weights of users' own features",
            "use fewer nodes or features, or a lower hidden",
        )

    def structure(self, graph: FederatedGraph) -> Structure:
        """The users' side: ``dropout`` is the server's."""
        bound = (6 / (graph.num_features + self.hidden)) ** 0.5  # Glorot's, of every head
        training = Training(
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            feature_dropout=self.feature_dropout,
            keep_optimizer=True,
        )
        return Structure((Latent(bound), training))

    def examples(self, graph: FederatedGraph) -> str:
        return (
            f"{self.name}'s users hold no losses: the server computes the one loss from latents that users send every"
            " round"
        )

    def readers(self) -> Mapping[type[Payload], str]:
        return {Latents: "the server trains its layers on them", LatentGradients: "the server itself computes them"}

    def labelled(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the training nodes, whose labels the server has; none for an observer without the server."""
        if SERVER not in observer.parties:
            return torch.empty(0, dtype=torch.long)
        return torch.cat(graph.train).nonzero().squeeze(1)

    def parties(
        self,
        graph: FederatedGraph,
        channel: Channel,
        start: torch.Generator,
        rng: torch.Generator,
        device: torch.device,
    ) -> tuple[Tensor, Tensor, Server, torch.Generator]:
        """Set up the training.

        Args:
            start: draws the first model.
            rng: the training's generator, split for the masks of users and server.

        Returns:
            The users' features [N, F] as the defense prepares them, the first layer [F, D] as the server draws it, the
                server, and the generator of the dropout of features.
        """
        masks, server_masks = (moved(split(rng, purpose), device) for purpose in ("features", "server"))
        x = graph.x
        if channel.prepares():
            x = torch.cat([channel.prepare(graph.client(k)).x for k in range(graph.num_clients)])
        x = x.to(device)
        model = self.model()
        layout = model.layout(graph.num_features, graph.num_classes)
        (_, first), *rest = ((name, weight.to(x)) for name, weight in model.initial(layout, start).items())
        edges = graph.edge_index.to(device)
        network = model.network(edges, graph.num_nodes, x.dtype)
        if self.smoothing_hops:
            network = Smoothed.on(network, edges, graph.num_nodes, x.dtype, self.smoothing_hops)
        server = Server(graph, network, dict(rest), self.server_settings(), server_masks)
        return x, first, server, masks

    def result(self, graph: FederatedGraph, x: Tensor, server: Server) -> Trained:
        """Return the outcome of the rounds that the ``server`` tested; ``x`` [N, F] are the users' features."""
        layout = self.model().layout(graph.num_features, graph.num_classes)
        count = int((x == 0).all(1).sum().item())
        note = f"{self.name}: {count} of {len(x)} users have no non-zero feature; their latents are always 0"
        return server.result(first_layer(layout), (note,) if count else ())
