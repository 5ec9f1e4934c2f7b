"""Local training of K clients with subgraphs at once: mini-batches, online clustering, accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import require_least, require_shares
from fglaudit.federated.example_gradients import private_mean
from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.interfaces import LocalUpdate
from fglaudit.nn.batched_adam import BatchedAdam
from fglaudit.nn.consistency import disagreement
from fglaudit.nn.graph_transformer import Dropout, Weights
from fglaudit.nn.online_clustering import Clustering, nearest
from fglaudit.nn.weights import Layout, unflatten


class Batch(Protocol):
    """Some nodes of every client, with the inputs that a network needs to classify them."""

    @property
    def reached(self) -> Tensor:
        """The mask [K, n] of the nodes and those they attend to directly: a node batch of FedGT's Algorithm 1."""

    def logits(self, weights: Weights, inputs: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        """Return the class scores of the nodes [K, m, classes] from the projected ``inputs`` [K, n, d] of all nodes."""


class Surroundings(Protocol):
    """The neighbourhoods that the clients' networks see."""

    def draw(self, batches: Sequence[Tensor], valid: Sequence[Tensor], rng: torch.Generator) -> Iterable[Batch]:
        """Draw the neighbourhoods of every batch [K, m]; entries where ``valid`` [K, m] is false do not count."""

    def everyone(self, rng: torch.Generator) -> Batch:
        """Return all nodes [K, n], as they are tested."""


class Masking(Protocol):
    """Weights that a network uses in place of those that are trained, and what its losses have beside the labels'."""

    def effective(self, weights: Weights, *, testing: bool) -> Weights:
        """Return what the network uses of ``weights`` [K, ...]."""

    def penalty(self, vectors: Tensor, received: Tensor) -> Tensor:
        """Return what is added to each client's loss [K]; ``received`` are the models it goes on from, [K, D] each."""


@dataclass(frozen=True)
class SubgraphSettings:
    """How a client trains between two messages.

    Attributes:
        epochs: local epochs per round, E.
        batch_size: training nodes per step; 0, or as many as a client has, for all of them.
        momentum: gamma of the online clustering; None: no global nodes.
        normalised: see :meth:`fglaudit.nn.online_clustering.Clustering.after`.
        keep_optimizer: whether Adam keeps its moments in the next round or starts afresh.
        samples: how often a training node's surroundings are drawn for one step.
        consistency: weight of the samples' disagreement in the loss, see ``fglaudit.nn.consistency``.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    dropout: float
    momentum: float | None = None
    normalised: bool = False
    keep_optimizer: bool = True
    samples: int = 1
    consistency: float = 0.0

    def __post_init__(self) -> None:
        require_least(self, epochs=1, batch_size=0, samples=1, learning_rate=0, weight_decay=0, consistency=0)
        require_shares(self, "dropout", *(() if self.momentum is None else ("momentum",)))


class SubgraphModels:
    """K models with their global nodes; client k's depend on client k's subgraph only.

    Attributes:
        vectors: current models [K, D].
        global_nodes: current codebooks [K, g, d].
    """

    def __init__(
        self,
        surroundings: Surroundings,
        settings: SubgraphSettings,
        inputs: SubgraphInputs,
        layout: Layout,
        rng: torch.Generator,
        update: LocalUpdate | None = None,
        masking: Masking | None = None,
    ) -> None:
        """Set up the models.

        Args:
            layout: of one model; its ``input.weight`` and ``input.bias`` act on all rows of a client.
            rng: draws batches, neighbours and dropout; on the device of ``inputs``.
            update: the defense's change of the gradients, from :meth:`fglaudit.interfaces.Channel.local_update`.
            masking: see :class:`Masking`; without ``update`` alone.
        """
        self._update, self._masking = update, masking
        self.surroundings, self.settings, self.inputs, self.layout, self._rng = (
            surroundings,
            settings,
            inputs,
            layout,
            rng,
        )
        device = inputs.labels.device
        self.vectors = torch.zeros(len(inputs.labels), sum(math.prod(s) for s in layout.values()), device=device)
        self.global_nodes = torch.zeros(len(inputs.labels), 0, 0, device=device)
        self._weights = unflatten(self.vectors, layout)
        self._received = self.vectors
        self._optimizer = BatchedAdam(self._weights, settings.learning_rate, settings.weight_decay)
        self._clustering: Clustering | None = None
        counts = inputs.train.sum(1)
        self._fewest, self._most = int(counts.min().item()), int(counts.max().item())

    def load(self, vectors: Tensor, global_nodes: Tensor | None = None) -> None:
        """Continue from models [K, D] and global nodes [K, g, d]; the clients keep their cluster counts."""
        self.vectors.copy_(vectors.detach())
        if self._masking is not None:
            self._received = self.vectors.clone()
        if not self.settings.keep_optimizer:
            self._optimizer.reset()
        if global_nodes is not None:
            self.global_nodes = global_nodes.detach().clone()
            if self._clustering is None:
                self._clustering = Clustering.of(self.global_nodes)

    def take_up(self, received: Tensor) -> None:
        """Continue from the first weights ``received`` [K, d]; the clients keep the others."""
        self.load(torch.cat([received.detach(), self.vectors[:, received.shape[1] :]], 1))

    def train_round(self) -> None:
        """Train ``epochs`` epochs of mini-batches; a client whose batches are used up waits."""
        settings, size = self.settings, self.settings.batch_size or max(self._most, 1)
        for _ in range(settings.epochs):
            order, real = self._shuffled()
            batches, valid = (
                [part.repeat(1, settings.samples) for part in torch.split(whole, size, 1)] for whole in (order, real)
            )
            drawn = self.surroundings.draw(batches, valid, self._rng)
            for index, (nodes, mask, batch) in enumerate(zip(batches, valid, drawn, strict=True)):
                self._step(nodes, mask, batch, all_active=index * size < self._fewest)

    def _shuffled(self) -> tuple[Tensor, Tensor]:
        """Return every client's training nodes in random order [K, t] and which entries are real."""
        train = self.inputs.train
        keys = torch.rand(train.shape, generator=self._rng, device=train.device) + 2 * ~train
        order = keys.argsort(1)[:, : self._most]
        return order, train.gather(1, order)

    def _step(self, nodes: Tensor, valid: Tensor, batch: Batch, *, all_active: bool) -> None:
        settings = self.settings
        labels = self.inputs.labels.gather(1, nodes).clamp(min=0)  # padding may be a node without a label
        dropout = Dropout(settings.dropout, self._rng)

        def losses(vectors: Tensor, inputs: Tensor) -> Tensor:
            outputs = batch.logits(self._used(vectors), inputs, self.global_nodes, dropout)
            each = functional.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none").view_as(valid)
            if settings.consistency > 0:
                drawn = outputs.view(len(outputs), settings.samples, -1, outputs.shape[2])
                each = each + settings.consistency * disagreement(drawn).repeat(1, settings.samples)
            return each

        count = valid.sum(1)
        if self._update is None:
            leaf = self.vectors.detach().requires_grad_()
            inputs = self._project(leaf)
            loss = (losses(leaf, inputs) * valid / count.clamp(min=1).unsqueeze(1)).sum()
            if self._masking is not None:
                loss = loss + self._masking.penalty(leaf, self._received).sum()
            (gradient,) = torch.autograd.grad(loss, leaf)
        else:
            gradient = private_mean(lambda v: losses(v, self._project(v)), self.vectors, valid, self._update)
            inputs = self._project(self.vectors)
        self._optimizer.step(unflatten(gradient, self.layout), None if all_active else count > 0)
        if self._clustering is not None and settings.momentum is not None:
            active = batch.reached & (count > 0).unsqueeze(1)
            self.global_nodes, self._clustering = self._clustering.after(
                inputs.detach(), active, self.global_nodes, settings.momentum, normalised=settings.normalised
            )

    def _used(self, vectors: Tensor, *, testing: bool = False) -> Weights:
        weights = unflatten(vectors, self.layout)
        return weights if self._masking is None else self._masking.effective(weights, testing=testing)

    def _project(self, vectors: Tensor, *, testing: bool = False) -> Tensor:
        weights = self._used(vectors, testing=testing)
        return self.inputs.project(weights["input.weight"], weights["input.bias"])

    @torch.no_grad()
    def correct(self) -> Tensor:
        """Return which nodes are classified correctly [K, n]."""
        inputs = self._project(self.vectors, testing=True)
        everyone = self.surroundings.everyone(self._rng)
        outputs = everyone.logits(self._used(self.vectors, testing=True), inputs, self.global_nodes, Dropout(0, None))
        return outputs.argmax(2) == self.inputs.labels

    @torch.no_grad()
    def clusters(self) -> Tensor:
        """Return the nearest global node of every node [K, n]; -1 for padding."""
        inputs = self._project(self.vectors)
        return torch.where(self.inputs.present, nearest(inputs, self.global_nodes), -1)
