"""Label distribution of a client from the biases of its last layer over the first rounds.

The gradient of a class's bias is the mean predicted probability of the class minus its share among the client's
training nodes. Adam hides the size of a gradient but not the trajectory: the first step is its sign, and later ones
follow from the ratios of successive gradients. The attack predicts the gradients from the received models (predictions
for the observer's known rows of each class; without any, for the global nodes, taken as nodes), runs the public
optimiser on them, and searches for the distribution under which the biases move as observed. Predictions are for other
nodes than the clients', so the weights beside the biases are a second opinion (:mod:`.adam_shares`), and what both tell
of all clients is pooled (:mod:`.pooled_shares`): clients that hardly differ are taken to be alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import (
    about,
    change_clip,
    fewer_edges,
    kept_columns,
    known_error,
    random_rows,
    row_clip,
    sealed,
)
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.public_rules import known_as_used
from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.adversary.uploads.held import (
    codebooks,
    missing_uploads,
    model_noise_std,
    model_rounds,
    sending_clients,
    unknown_adam,
    unknown_changes,
    uploads,
)
from fglaudit.adversary.uploads.known_nodes import log_probabilities, predict, unknown_architecture
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.updates.adam_shares import planted_moves, shares_from_moves
from fglaudit.attacks.updates.pooled_shares import pooled_shares
from fglaudit.facts import Absent, Fact, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.batched_adam import BETAS, EPSILON
from fglaudit.nn.graph_transformer import Dropout, initial_model
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, GlobalNodes, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Training
from fglaudit.view import View

_WEIGHT, _BIAS = "classes.weight", "classes.bias"
_FIT_STEPS = 400
_MODEL_ERROR = 0.3, 0.02
"""Initial and least standard deviation of an observed step around a predicted one, in learning rates: predictions are
for other nodes than the client's. It is refitted twice during the fit."""


@dataclass(frozen=True)
class BiasTrajectory:
    """How the biases of K clients moved in T rounds.

    Attributes:
        moves: changes of the biases [T, K, C].
        std: standard deviation of what the defense adds to a move.
        predicted: mean class probabilities of nodes of each class, under the received models [T, K, C, C].
    """

    moves: Tensor
    std: float
    predicted: Tensor


@dataclass(frozen=True)
class UpdateLabels(Attack):
    """Infer label distributions from model updates.

    Attributes:
        draws: of dropout, over which predictions are averaged.
    """

    name: ClassVar[str] = "update-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate, GlobalNodes)
    metric: ClassVar[str] = "overlap"
    quantity: ClassVar[str] = "label-distributions"
    first_rounds: ClassVar[int | None] = 5
    least: ClassVar[Mapping[str, float]] = {"draws": 1}

    draws: int = 4

    def unsupported(self, view: View) -> str | None:
        if _BIAS not in view.public.layout:
            return "updates are read as steps of Adam on the last layer's biases; this protocol's layout has none"
        missing = missing_uploads(view, ModelUpdate, GlobalNodes) or unknown_changes(view)
        return missing or unknown_adam(view) or unknown_architecture(view)

    def models(self, fact: Fact) -> bool:
        """Errors of uploads enter by their variance, clips by what they leave. Known rows are predicted as they are
        used, and without neighbours anyway; of global nodes only those received are read, as clients used them."""
        sent = known_error(fact, ModelUpdate)
        sent = sent or change_clip(fact, ModelUpdate) or sealed(fact, ModelUpdate)
        read_as_used = about(fact, GlobalNodes) and is_built_in(fact) and not isinstance(fact, Absent)
        gone = isinstance(fact, Absent) and fact.share == 0
        rows = row_clip(fact) or kept_columns(fact) or random_rows(fact)
        return sent or read_as_used or gone or rows or fewer_edges(fact)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        trajectory = self._trajectory(view, split(rng, "dropout"))
        clients, moved = sending_clients(view, ModelUpdate), shares_from_moves(view)
        known = view.known_rows().y
        counts = torch.bincount(known[known >= 0], minlength=view.public.num_classes).double()
        if moved is None or not torch.equal(moved[0], clients):
            prior = (counts + 1) / (counts + 1).sum()
            return Inference(type(self).quantity, clients, _fit(view, trajectory, prior.expand(len(clients), -1)))
        shares = pooled_shares(_fit(view, trajectory, moved[1]), moved[1], counts)
        return Inference(type(self).quantity, clients, shares)

    def _trajectory(self, view: View, rng: torch.Generator) -> BiasTrajectory:
        books = codebooks(view, type(self).first_rounds)
        known = view.known_rows()
        use = known.y >= 0
        kinds = torch.nn.functional.one_hot(known.y[use], view.public.num_classes).float()
        share = view.public.structure.of(Training).dropout
        std, moves, predicted = 0.0, [], []
        for received, models in zip(books.received, model_rounds(view, len(books.uploaded)), strict=False):
            chance = torch.zeros(())
            for _ in range(self.draws):
                dropout = Dropout(share, rng)
                if bool(use.any()):
                    rows = known_as_used(view, known.x[use])
                    scores = log_probabilities(view, models.received, received, rows, dropout)
                else:
                    scores = predict(view, models.received, received, received, dropout)
                chance = chance + scores.exp() / self.draws
            overall = chance.mean(1, keepdim=True).expand(-1, view.public.num_classes, -1)
            if bool(use.any()):
                of_class = torch.einsum("nc,knd->kcd", kinds, chance) / kinds.sum(0).clamp(min=1).view(1, -1, 1)
                overall = torch.where((kinds.sum(0) > 0).view(1, -1, 1), of_class, overall)
            predicted.append(overall.double())
            std = model_noise_std(view, models)
            moves.append(unflatten(models.change, view.public.layout)[_BIAS].double())
        return BiasTrajectory(torch.stack(moves), std, torch.stack(predicted))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients with mostly nodes of one class each, whose biases move exactly as predicted, and whose units
        all move the same way.

        The models contain nothing but biases, different ones in every round. They are simulated: in a rehearsal biases
        would move as the clients' own nodes have it, which the prediction for known nodes only approximates.
        """
        clients = sending_clients(view, ModelUpdate)
        rounds, classes = type(self).first_rounds or 1, view.public.num_classes
        models = initial_model(view.public.layout, split(rng, "model")).repeat(rounds, len(clients), 1)
        for t in range(rounds):
            weights = unflatten(models[t], view.public.layout)  # views into ``models``
            weights[_WEIGHT].zero_()
            weights[_BIAS].copy_(torch.randn(classes, generator=rng))
        centers = torch.randn(next(uploads(view, GlobalNodes, 1)).shape, generator=split(rng, "centers"))
        still = torch.zeros_like(models)
        trajectory = self._trajectory(_messages(view, clients, models, still, centers), split(rng, "dropout"))
        of = (torch.arange(len(clients)) + torch.randint(classes, (), generator=rng)) % classes
        up = 2 * torch.nn.functional.one_hot(of, classes).float() - 1
        rate = view.public.structure.of(Training).learning_rate
        units, shares = planted_moves(up, view.public.layout[_WEIGHT][0], rate, rng)
        moves = simulate(view, trajectory.predicted, shares, rate, 1)
        for t in range(rounds):
            unflatten(still[t], view.public.layout)[_WEIGHT].copy_(units)
            unflatten(still[t], view.public.layout)[_BIAS].copy_(moves[t])
        return Planted(_messages(view, clients, models, still, centers), shares, clients)


def _messages(view: View, clients: Tensor, models: Tensor, changes: Tensor, centers: Tensor) -> View:
    """Return a view of rounds in which clients receive models and upload changes, while the global nodes stay.

    Args:
        clients: [K].
        models, changes: [T, K, D].
        centers: the global nodes [K, g, d].
    """
    server = torch.full_like(clients, SERVER)
    batches = []
    for round, (received, change) in enumerate(zip(models, changes, strict=True)):
        batches += [
            MessageBatch(round, server, clients, ModelUpdate(received)),
            MessageBatch(round, server, clients, GlobalNodes(centers)),
            MessageBatch(round + 1, clients, server, ModelUpdate(change)),
            MessageBatch(round + 1, clients, server, GlobalNodes(centers)),
        ]
    return without_defense(view, MemoryMessages(tuple(batches)))


def _fit(view: View, trajectory: BiasTrajectory, prior: Tensor) -> Tensor:
    """Return the distributions [K, C] with the nearest predicted trajectory, weakly regularised to ``prior`` [K, C]."""
    step = view.public.structure.of(Training).learning_rate
    noise = trajectory.std**2
    clip = UploadClip.of(view, ModelUpdate)
    variance = noise + (_MODEL_ERROR[0] * step) ** 2
    first = float(trajectory.moves[0].abs().max().item()) / step  # in steps
    repeats = max(1, round(first)) if noise == 0 else 1
    shrink = 1.0
    if clip.length is not None and noise == 0:  # the first moves of biases all go one way, and show it
        shrink = min(1.0, max(first, 1e-3))
    elif clip.length is not None:  # under Adam, all weights move about one step at a time
        weights = sum(math.prod(shape) for shape in view.public.layout.values())
        shrink = min(1.0, clip.length / (step * math.pow(weights, 1 / clip.order)))
    with torch.enable_grad():
        # A bias rises where the class is more frequent than predicted: start on the right side of all signs, as far as
        # noise lets them be seen.
        seen = (shrink * step) ** 2 / ((shrink * step) ** 2 + noise / len(trajectory.moves))
        scores = (prior.log() + 2 * seen * shrink * trajectory.moves.mean(0) / step).requires_grad_()
        optimiser = torch.optim.Adam([scores], lr=0.1)
        for index in range(_FIT_STEPS):
            shares = scores.log_softmax(1)
            moves = simulate(view, trajectory.predicted, shares.exp(), step, min(repeats, 8))
            if clip.bound is not None:
                moves = moves.clamp(-clip.bound, clip.bound)
            moves = shrink * moves
            error = (moves - trajectory.moves).square()
            if index in (_FIT_STEPS // 3, 2 * _FIT_STEPS // 3):
                variance = max(float(error.mean().item()), noise + (_MODEL_ERROR[1] * step) ** 2)
            loss = error.sum() / (2 * variance) - (prior * shares).sum()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return scores.detach().softmax(1)


def simulate(view: View, predicted: Tensor, shares: Tensor, step: float, repeats: int) -> Tensor:
    """Return how the biases would move under a label distribution, [T, K, C].

    Args:
        predicted: mean class probabilities of nodes of each class [T, K, C, C].
        shares: label distributions [K, C].
        step: learning rate.
        repeats: steps per round.
    """
    keep = view.public.structure.of(Training).keep_optimizer
    mean, square, done = torch.zeros_like(shares), torch.zeros_like(shares), 0
    moves = []
    for chances in predicted:
        if not keep:
            mean, square, done = torch.zeros_like(shares), torch.zeros_like(shares), 0
        gradient = torch.einsum("kc,kcd->kd", shares, chances) - shares
        move = torch.zeros_like(shares)
        for _ in range(repeats):
            done += 1
            mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
            square = BETAS[1] * square + (1 - BETAS[1]) * gradient.square()
            length = (square / (1 - BETAS[1] ** done) + 1e-12).sqrt() + EPSILON
            move = move - step * mean / (1 - BETAS[0] ** done) / length
        moves.append(move)
    return torch.stack(moves)
