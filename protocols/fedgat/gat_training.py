"""Federated training of a GAT: local steps, averaging, exchange of hidden embeddings, test of the new model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError, require_known, require_least, require_shares
from fglaudit.federated.example_gradients import private_mean
from fglaudit.federated.fedavg import FedAvg, average, broadcast, sample_clients, upload
from fglaudit.federated.node_progress import CHOICES
from fglaudit.federated.sending import send
from fglaudit.federated.training import accuracies
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.batched_adam import BatchedAdam
from fglaudit.nn.gat import LayerWeights, attend, layer_weights, project, project_scores, softmax_scores
from fglaudit.nn.weights import Layout, flatten, unflatten
from fglaudit.payloads import Embeddings
from fglaudit.protocols.fedgat.gat_field import Exchange, Field
from fglaudit.protocols.fedgat.server_adam import ServerAdam, ServerOptimizer
from fglaudit.rng import moved, split
from fglaudit.sealing import SealedTensor

Optimizer = torch.optim.SGD | BatchedAdam

FirstLayer = Callable[[LayerWeights], Tensor]
"""From the first layer's weights to its means [K, rows, heads, out]."""

Bounds = Literal["scores", "all", "first-layer", "none"]
BOUNDS: tuple[Bounds, ...] = get_args(Bounds)


class Dropout(NamedTuple):
    """Shares dropped in training: of each row's hidden units between layers, of the features (same for all nodes)."""

    units: float
    features: float


NO_DROPOUT = Dropout(0.0, 0.0)


@dataclass(frozen=True)
class GatSettings:
    """Settings beside those of :class:`fglaudit.federated.fedavg.FedAvg` and of its local training.

    Attributes:
        proximal: FedProx's mu: clients minimise their loss plus ``mu / 2 ||w - w_global||^2``; 0 is FedAvg.
        keep_optimizer: whether a client's Adam keeps its moments in the next round or starts afresh.
        bounds: what holds after every step: "all" or "first-layer", whose weights keep Assumption 2; "scores": those of
            the first layer stay in [-domain, domain]; or "none".
        server_optimizer, server_learning_rate: "none": clients receive the mean of their models; "adam": the server
            steps on the mean of their gradients, see :class:`fglaudit.protocols.fedgat.server_adam.ServerAdam`.
        feature_dropout: share of the features that a client drops in a step, the same for all nodes.
        choice: the round that counts: "last", or "validation" for the one with the best validation accuracy; without
            validation nodes the last one.
    """

    proximal: float
    keep_optimizer: bool
    bounds: str
    feature_dropout: float
    choice: str
    domain: float = 2.0
    server_optimizer: ServerOptimizer = "none"
    server_learning_rate: float = 0.01

    def __post_init__(self) -> None:
        require_least(self, proximal=0)
        require_shares(self, "feature_dropout")
        require_known(self, bounds=BOUNDS, choice=CHOICES)

    def keep(self, weights: Mapping[str, Tensor]) -> None:
        """Project ``weights`` [K, ...] in place."""
        if self.bounds == "scores":
            project_scores(layer_weights(weights)[0], self.domain)
        elif self.bounds != "none":
            project(weights, 1 if self.bounds == "first-layer" else len(weights))


@dataclass(frozen=True)
class Part:
    """A receptive field and how its first layer is evaluated."""

    field: Field
    first: FirstLayer


def joined(means: Tensor) -> Tensor:
    """Return a hidden layer's output [K, R, heads x out]."""
    return functional.elu(means.flatten(2))


def run_layers(
    part: Part,
    weights: Mapping[str, Tensor],
    received: Callable[[int, Tensor], Tensor],
    dropout: Dropout = NO_DROPOUT,
    rng: torch.Generator | None = None,
) -> Tensor:
    """Return the targets' logits [K, R_L, classes].

    Args:
        weights: of K models [K, ...], by name.
        received: given a layer's index and its own outputs [K, R, D], returns the rows of its exchange [Q, D].
        dropout: drawn by ``rng``; None evaluates.
    """
    first, *others = layer_weights(weights)
    if rng is not None and dropout.features > 0:
        # One mask for all nodes: masked messages cannot drop a neighbour's features one by one.
        kept = torch.rand(first.weight.shape[:2], generator=rng, device=first.weight.device) >= dropout.features
        first = replace(first, weight=first.weight * (kept / (1 - dropout.features)).unsqueeze(2))
    means = part.first(first)
    for index, (layer, plan) in enumerate(zip(others, part.field.later, strict=True)):
        own = joined(means)
        rows = received(index, own).index_select(0, plan.taken)
        remote = own.new_zeros(len(own) * plan.remote_size, own.shape[2]).index_copy(0, plan.remote_place, rows)
        inputs = torch.cat([own, remote.view(len(own), plan.remote_size, -1)], 1)
        if rng is not None and dropout.units > 0:
            kept = torch.rand(inputs.shape, generator=rng, device=inputs.device) >= dropout.units
            inputs = inputs * kept / (1 - dropout.units)
        means = attend(layer.transform(inputs), layer, plan.edges, softmax_scores)
    return means.mean(2)


def target_losses(field: Field, outputs: Tensor) -> Tensor:
    """Return the cross-entropy of every target [K, R_L] from logits [K, R_L, classes]; padded entries are arbitrary."""
    return functional.cross_entropy(outputs.flatten(0, 1), field.labels.flatten(), reduction="none").view_as(field.mask)


def client_losses(field: Field, outputs: Tensor) -> Tensor:
    """Return the sum over clients of the mean cross-entropy over their targets."""
    losses = target_losses(field, outputs)
    return (losses * field.mask / field.counts.clamp(min=1).unsqueeze(1)).sum()


@dataclass(frozen=True)
class Problem:
    """What is trained and tested.

    Attributes:
        train: the training nodes' field.
        test: the field of test and validation nodes and of everything that is exchanged.
        exchanges: after layers 1 ... L-1.
        is_test, is_validation: masks [K, R_L] of ``test``.
        groups: for each target of ``test`` [K, R_L] the client whose accuracy it counts for.
    """

    train: Part
    test: Part
    exchanges: tuple[Exchange, ...]
    is_test: Tensor
    is_validation: Tensor
    groups: Tensor
    num_groups: int


class GatTraining:
    """One training run of K models side by side."""

    def __init__(
        self, problem: Problem, averaging: FedAvg, settings: GatSettings, layout: Layout, channel: Channel
    ) -> None:
        """Set up the run; :class:`Problem` states the shapes of its tensors, ``layout`` those of the weights."""
        self.problem, self.averaging, self.settings, self.layout, self.channel = (
            problem,
            averaging,
            settings,
            layout,
            channel,
        )
        self._received: list[Tensor] = []
        self.outside: Callable[[LayerWeights], Tensor] | None = None
        """Returns the share of edge scores outside the series' domain; called after every round if set."""
        self.worst_outside = 0.0
        self.notes: tuple[str, ...] = ()
        """What a reader must know of the rows that are trained on."""

    def run(self, initial: Tensor, rng: torch.Generator, *, federated: bool) -> Trained:
        """Train from one ``initial`` model [D].

        Args:
            federated: whether there are messages; otherwise there is one client, and no averaging.
        """
        averaging, problem = self.averaging, self.problem
        self._dropout = moved(split(rng, "dropout"), initial.device)
        sampling = split(rng, "participation")
        counts = problem.train.field.counts.cpu()
        eligible = counts.nonzero().squeeze(1)
        shares = counts.to(initial.dtype) if averaging.weighting == "train-nodes" else None
        model = initial.clone()
        self.settings.keep(unflatten(model.unsqueeze(0), self.layout))
        received = self._broadcast(0, model, len(counts), federated)
        weights = {name: w.clone().requires_grad_() for name, w in unflatten(received, self.layout).items()}
        optimizer = self._optimizer(weights)
        self._predict(0, received)
        validated = self.settings.choice == "validation" and bool(problem.is_validation.any())
        best, chosen_round = torch.tensor(-1.0, device=initial.device), torch.tensor(0, device=initial.device)
        stepping = None
        if self.settings.server_optimizer == "adam":
            reach = averaging.settings.learning_rate * averaging.local_steps
            stepping = ServerAdam(model, reach, self.settings.server_learning_rate)
        worst, chosen_model, correct = torch.zeros_like(best), model, []
        chosen_right = torch.zeros_like(problem.is_test)
        for round in range(1, averaging.rounds + 1):
            chosen = sample_clients(eligible, averaging.participation, sampling)
            self._local_steps(weights, received, optimizer, chosen)
            vectors = flatten({name: w.detach() for name, w in weights.items()})
            if federated:
                uploads = upload(self.channel, round, vectors, chosen)
                mean = average(uploads, None if shares is None else shares[chosen].to(uploads.device))
                model = mean if stepping is None else stepping.step(model, mean)
            else:
                model = vectors[0]
            if not isinstance(model, SealedTensor):  # every client projects again what it reads
                self.settings.keep(unflatten(model.unsqueeze(0), self.layout))
            received = self._broadcast(round, model, len(counts), federated)
            self._load(weights, received, optimizer)
            hit = self._predict(round, received)
            right = hit & problem.is_test
            correct.append(self._by_group(right))
            score = (hit & problem.is_validation).sum().to(best)
            better = score > best if validated else torch.ones_like(best, dtype=torch.bool)
            best = torch.where(better, score, best)
            chosen_round = torch.where(better, round - 1, chosen_round)
            chosen_right = torch.where(better, right, chosen_right)
            chosen_model = torch.where(better, received[0], chosen_model)  # what was released, noise and all
            if self.outside is not None:
                worst = torch.maximum(worst, self.outside(layer_weights(unflatten(received, self.layout))[0]).to(worst))
            self.channel.round_done(round, averaging.rounds)
        self.worst_outside = float(worst.item())
        return self._trained(correct, chosen_model, int(chosen_round.item()), chosen_right)

    def _trained(self, correct: Sequence[Tensor], model: Tensor, chosen: int, right: Tensor) -> Trained:
        if not bool(torch.isfinite(model).all()):
            raise FglauditError(
                f"training must stay finite; the model of round {chosen + 1} is not; lower the learning rate, or keep"
                " the scores within the series' domain (bounds: first-layer or all)"
            )
        accuracy, accuracy_global = accuracies(correct, self._by_group(self.problem.is_test))
        final = {name: w.squeeze(0).cpu() for name, w in unflatten(model.unsqueeze(0), self.layout).items()}
        tested = self.problem.is_test
        order = torch.argsort(self.problem.groups[tested], stable=True)
        right = right[tested][order].cpu()
        return Trained(accuracy, accuracy_global, final, self.layout, chosen, notes=self.notes, right=right)

    def _by_group(self, flags: Tensor) -> Tensor:
        counts = torch.zeros(self.problem.num_groups, device=flags.device)
        return counts.index_add_(0, self.problem.groups.flatten(), flags.flatten().float())

    def _broadcast(self, round: int, model: Tensor, clients: int, federated: bool) -> Tensor:
        received = broadcast(self.channel, round, model, clients) if federated else model.unsqueeze(0)
        received = received.clone()
        self.settings.keep(unflatten(received, self.layout))
        return received

    def _optimizer(self, weights: Mapping[str, Tensor]) -> Optimizer:
        local = self.averaging.settings
        if local.optimizer == "adam":
            return BatchedAdam(weights, local.learning_rate, local.weight_decay)
        return torch.optim.SGD(weights.values(), lr=local.learning_rate, weight_decay=local.weight_decay)

    @torch.no_grad()
    def _load(self, weights: Mapping[str, Tensor], received: Tensor, optimizer: Optimizer) -> None:
        for name, value in unflatten(received, self.layout).items():
            weights[name].copy_(value)
        if isinstance(optimizer, BatchedAdam) and not self.settings.keep_optimizer:
            optimizer.reset()

    def _local_steps(
        self, weights: Mapping[str, Tensor], received: Tensor, optimizer: Optimizer, chosen: Tensor
    ) -> None:
        """Let clients take their steps of a round; moments of those that were not ``chosen`` [P] stay as they are."""
        anchor, update = unflatten(received, self.layout), self.channel.local_update()
        active = None
        if self.averaging.participation < 1:
            active = torch.zeros(len(received), dtype=torch.bool)
            active[chosen] = True
            active = active.to(received.device)
        for _ in range(self.averaging.local_steps):
            for weight in weights.values():
                weight.grad = None
            if update is None:
                self.loss(weights, self._dropout).backward()  # type: ignore[no-untyped-call]
            else:
                models = flatten({name: w.detach() for name, w in weights.items()})
                gradient = private_mean(self._losses, models, self.problem.train.field.mask, update)
                for name, part in unflatten(gradient, self.layout).items():
                    weights[name].grad = part.clone()
            if self.settings.proximal > 0:
                for name, weight in weights.items():
                    if weight.grad is not None:
                        weight.grad.add_(weight.detach() - anchor[name], alpha=self.settings.proximal)
            if isinstance(optimizer, BatchedAdam):
                optimizer.step({name: _gradient(weight) for name, weight in weights.items()}, active)
            else:
                optimizer.step()
            self.settings.keep(weights)

    def loss(self, weights: Mapping[str, Tensor], dropout: torch.Generator | None = None) -> Tensor:
        """Return the clients' summed training loss; remote rows are those of the last exchange."""
        return client_losses(self.problem.train.field, self._outputs(weights, dropout))

    def _losses(self, models: Tensor) -> Tensor:
        return target_losses(self.problem.train.field, self._outputs(unflatten(models, self.layout), self._dropout))

    def _outputs(self, weights: Mapping[str, Tensor], dropout: torch.Generator | None) -> Tensor:
        shares = Dropout(self.averaging.settings.dropout, self.settings.feature_dropout)
        return run_layers(self.problem.train, weights, self._last_received, shares, dropout)

    def _last_received(self, layer: int, own: Tensor) -> Tensor:
        return self._received[layer]

    @torch.no_grad()
    def _predict(self, round: int, models: Tensor) -> Tensor:
        """Exchange hidden embeddings under ``models`` [K, D]; return which targets are correct [K, R_L]."""
        self._received = []

        def exchange(layer: int, own: Tensor) -> Tensor:
            self._received.append(self._send(round, layer, own))
            return self._received[layer]

        part = self.problem.test
        outputs = run_layers(part, unflatten(models, self.layout), exchange)
        return (outputs.argmax(-1) == part.field.labels) & part.field.mask

    def _send(self, round: int, layer: int, own: Tensor) -> Tensor:
        if not self.problem.exchanges:
            return own.flatten(0, 1)[:0]
        plan, grid = self.problem.exchanges[layer], self.problem.test.field.outputs[layer]
        row = grid.place[grid.find(plan.codes)]
        values = own.flatten(0, 1).index_select(0, row)
        if len(row) == 0:
            return values
        arrived = send(self.channel, round, plan.senders, plan.receivers, Embeddings(plan.node, values), plan.splits)
        return arrived.values


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad
