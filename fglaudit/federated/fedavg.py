"""Federated averaging (McMahan et al. 2017) with clients as a tensor dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Uploads
from fglaudit.errors import FglauditError, require_known, require_least
from fglaudit.federated.sending import from_server, to_server
from fglaudit.federated.training import LocalModels, LocalSettings, accuracies, all_hits, as_blocks
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.gcn import Field
from fglaudit.nn.weights import Layout, unflatten
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.rng import moved, split
from fglaudit.structure import Training

Weighting = Literal["uniform", "train-nodes"]
WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)
ROUNDING = 1e-4
"""Generous bound on the relative error of sums of float32 weights."""


@dataclass(frozen=True)
class FedAvg:
    """Rounds of local training, averaging, and testing of the new global model.

    Attributes:
        rounds: averagings.
        local_steps: full-batch gradient steps of every client in between.
        participation: share of the clients with training nodes that is sampled each round.
        weighting: "uniform", or "train-nodes" for weights proportional to training nodes.
    """

    rounds: int
    local_steps: int
    participation: float
    weighting: str
    settings: LocalSettings

    def __post_init__(self) -> None:
        require_least(self, rounds=1, local_steps=1)
        require_known(self, weighting=WEIGHTINGS)
        if not 0 < self.participation <= 1:
            raise FglauditError(
                f"participation is a share of the clients in (0, 1]; got {self.participation:g}; use 1 for all"
            )

    def aggregates(self, graph: FederatedGraph, layout: Layout) -> dict[type[Payload], Aggregate]:
        """Return the facts that a defense needs about the averaged models."""
        uploads = len(sample_clients(trainers(graph), self.participation, torch.Generator()))
        return averaged_models(layout, graph.num_clients, uploads, self.rounds, weighted=self.weighting != "uniform")

    def train(
        self,
        train: Field | Sequence[Field],
        test: Field | Sequence[Field],
        initial: Tensor,
        layout: Layout,
        channel: Channel,
        rng: torch.Generator,
        *,
        after: int = 0,
        of: int | None = None,
    ) -> Trained:
        """Train from one ``initial`` model [D], which every client receives as round 0.

        Sampled clients upload; all clients receive the new model and test it on their own test nodes.

        Args:
            train, test: receptive fields of K clients, in one or in several blocks of clients.
            layout: shape of each weight; D numbers in all.
            after: rounds that were trained before, by all clients, who have ``initial`` from the last of them.
            of: rounds of the whole training, for progress; None: these are all.
        """
        dropout = moved(split(rng, "dropout"), initial.device)
        sampling = split(rng, "participation")
        counts, tested = (torch.cat([field.counts for field in as_blocks(fields)]).cpu() for fields in (train, test))
        eligible = counts.nonzero().squeeze(1)
        weights = counts.float() if self.weighting == "train-nodes" else None
        model, num_clients, correct = initial, len(counts), []
        received = model.expand(num_clients, -1) if after else broadcast(channel, 0, model, num_clients)
        models = LocalModels(received, layout, train, self.settings, dropout, channel.local_update())
        for round in range(after + 1, after + self.rounds + 1):
            models.step(self.local_steps)
            chosen = sample_clients(eligible, self.participation, sampling)
            uploads = upload(channel, round, models.vectors(), chosen)
            model = average(uploads, None if weights is None else weights[chosen].to(uploads.device))
            received = broadcast(channel, round, model, num_clients)
            models.load(received)
            right = all_hits(as_blocks(test), models.weights)
            correct.append(torch.cat([block.sum(1) for block in right]))
            channel.round_done(round, of or self.rounds)
        accuracy, accuracy_global = accuracies(correct, tested)
        # The model is what the server released: a defense may have made it noisy on its way out.
        final = {name: weight.squeeze(0).cpu() for name, weight in unflatten(received[:1], layout).items()}
        which = torch.cat([block[field.mask] for block, field in zip(right, as_blocks(test), strict=True)])
        return Trained(accuracy, accuracy_global, final, layout, right=which.cpu())

    def uploads(self, graph: FederatedGraph) -> Uploads:
        """Return who sends models, and the largest weight of one of them."""
        return largest_share(graph, self.participation, self.weighting)

    def training(self) -> Training:
        """Return what attacks may know of the clients' training."""
        return self.settings.training(self.local_steps, self.participation)

    def passes(self) -> int:
        """Gradient steps of one training run, each on all of a client's training nodes."""
        return self.rounds * self.local_steps


def largest_share(graph: FederatedGraph, participation: float, weighting: str) -> Uploads:
    """Return who sends models among the clients with training nodes, and the largest weight of one of them."""
    counts = torch.tensor([int(train.sum().item()) for train in graph.train])
    counts = counts[counts > 0].sort().values.double()
    senders = sample_size(len(counts), participation)
    if weighting == "uniform":
        return Uploads(senders, len(counts), 1 / senders)
    # The largest client weighs most when the smallest ones are sampled with it.
    share = counts[-1] / (counts[-1] + counts[: senders - 1].sum())
    return Uploads(senders, len(counts), float(share.item()), by_training_nodes=True)


def sample_size(count: int, fraction: float) -> int:
    """Return how many of ``count`` clients take part in a round."""
    return count if fraction >= 1 else max(1, round(fraction * count))


def trainers(graph: FederatedGraph) -> Tensor:
    """Return the clients with training nodes, ascending."""
    return torch.tensor([bool(train.any()) for train in graph.train]).nonzero().squeeze(1)


def averaged_models(
    layout: Layout, num_clients: int, uploads: int, rounds: int, *, weighted: bool = False
) -> dict[type[Payload], Aggregate]:
    """Return the facts that a defense needs about models of ``uploads`` clients per round, whose mean all receive."""
    everyone = torch.arange(num_clients)
    width = sum(math.prod(shape) for shape in layout.values())
    summands = torch.tensor([uploads])
    zero = torch.zeros_like(everyone)
    return {
        ModelUpdate: Aggregate(
            zero, everyone, width, None, summands, weighted=weighted, weight=1 + ROUNDING, releases=rounds
        )
    }


def sample_clients(eligible: Tensor, fraction: float, rng: torch.Generator) -> Tensor:
    """Return ``max(1, round(fraction n))`` of the n ``eligible`` clients, ascending; all without a draw at 1."""
    if fraction >= 1:
        return eligible
    count = sample_size(len(eligible), fraction)
    return eligible[torch.randperm(len(eligible), generator=rng)[:count]].sort().values


def average(vectors: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the weighted mean [D] of ``vectors`` [P, D]; ``weights`` [P] need not sum to one, None: equal weights."""
    if weights is None:
        weights = torch.ones(len(vectors), dtype=vectors.dtype, device=vectors.device)
    return (weights / weights.sum()) @ vectors


def upload(channel: Channel, round: int, models: Tensor, clients: Tensor) -> Tensor:
    """Send the models [K, D] of some ``clients`` [P] to the server; return what it receives [P, D]."""
    return upload_models(channel, round, clients, models if len(clients) == len(models) else models[clients])


def upload_models(channel: Channel, round: int, clients: Tensor, models: Tensor) -> Tensor:
    """Send the models [P, D] of ``clients`` [P] to the server; return what it receives."""
    return to_server(channel, round, clients.cpu(), ModelUpdate(models)).vector


def broadcast(channel: Channel, round: int, model: Tensor, num_clients: int) -> Tensor:
    """Send one model [D] to every client; return what each receives [K, D]."""
    return return_models(channel, round, model.expand(num_clients, -1))


def return_models(channel: Channel, round: int, models: Tensor) -> Tensor:
    """Send every client its own model [K, D]; return what each receives [K, D]."""
    return from_server(channel, round, torch.arange(len(models)), ModelUpdate(models)).vector
