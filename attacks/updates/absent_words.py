"""Membership of a known node at a client, from the words that none of the client's nodes has.

The rows of the input layer that belong to a word no node in reach has get no gradient from the loss, only weight decay.
The first step of Adam has the same size for any gradient, so such a row moves by exactly minus the learning rate times
the sign of its weights (without weight decay it does not move at all), while the row of a present word moves in other
directions. The mean over the hidden units separates the two cases for every word, even under noise as strong as the
steps. A node with a word that the client lacks is not the client's.

The statistic is fitted as a mixture of two Gaussians. The score is the log likelihood ratio of "all the node's words
occur at the client" against the words' frequencies over all clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.modelled import (
    about,
    change_clip,
    fewer_edges,
    kept_columns,
    known_error,
    row_clip,
    sealed,
)
from fglaudit.adversary.planting import (
    MemoryMessages,
    dealt,
    different_first,
    planted_federation,
    rehearsed,
    with_own_rows,
)
from fglaudit.adversary.public_rules import unused_columns
from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.adversary.uploads.held import (
    input_map,
    missing_uploads,
    model_noise_std,
    model_rounds,
    one_other,
    one_sender,
    sending_clients,
    unknown_adam,
    unknown_changes,
)
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.facts import GRADIENTS, Absent, Clipped, Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Training
from fglaudit.view import View

_EM_STEPS = 50
_MISSED = 0.01
"""Approximate share of a client's nodes that no batch of the first round reaches."""
_LEAST_SPREAD = 0.02


@dataclass(frozen=True)
class AbsentWords(Attack):
    """Infer which client holds a known node, from the words that a client lacks."""

    name: ClassVar[str] = "absent-words"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "node-owner"
    first_rounds: ClassVar[int | None] = 1

    def models(self, fact: Fact) -> bool:
        """Errors of the messages enter the statistic by their variance, a clip by its factor. Of words that are absent
        no row may be random; what happens to edges or to the length of rows and gradients leaves them absent."""
        sent = known_error(fact, ModelUpdate)
        sent = sent or change_clip(fact, ModelUpdate) or sealed(fact, ModelUpdate)
        gone = isinstance(fact, Absent) and about(fact, ModelUpdate)  # one round is read, of those who sent in it
        shorter = row_clip(fact) or (isinstance(fact, Clipped) and fact.target == GRADIENTS)
        return sent or gone or shorter or kept_columns(fact) or fewer_edges(fact)

    def unsupported(self, view: View) -> str | None:
        if "input.weight" not in view.public.layout:
            return "updates are read as steps of Adam on a layer called input; this protocol's layout has none"
        words = view.auxiliary.x != 0
        if bool(words.all()):
            return "every known node has all words"
        if len(words) and bool((words == words[:1]).all()):
            return "all known nodes have the same words"
        why = one_other(view) or missing_uploads(view, ModelUpdate) or unknown_adam(view) or unknown_changes(view)
        return why or one_sender(view, ModelUpdate)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        clients = sending_clients(view, ModelUpdate)
        present = 1 - _chance_absent(_statistic(view).to(device))
        typical = (present.sum(0) + 0.5) / (len(present) + 1)
        ratio = ((1 - _MISSED) * present / typical + _MISSED * (1 - present) / (1 - typical)).clamp(min=1e-12).log()
        ratio[:, unused_columns(view).to(device)] = 0  # absent everywhere, whoever holds the node
        has = (view.auxiliary.x != 0).to(ratio)
        pairs = torch.cartesian_prod(clients, view.auxiliary.nodes)
        return Inference(type(self).quantity, pairs, (ratio @ has.T).flatten().cpu())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients that each train on one known node, without neighbours, in a single step.

        Clients beyond the known nodes train on a node without words, as all their other nodes are. Asked about are a
        client's node, and those with a word that it lacks: by words the others are not told from it.
        """
        rng = split(rng, "plant")
        public, known, clients = view.public, view.auxiliary, sending_clients(view, ModelUpdate)
        words, order = known.x != 0, torch.randperm(len(known.nodes), generator=rng)
        chosen = order[different_first(words[order])][: len(clients)]
        owner = dealt(view, (~own_nodes(view)).nonzero().squeeze(1))
        owner[known.nodes] = -1
        owner[known.nodes[chosen]] = clients[: len(chosen)]
        x = torch.zeros(public.num_nodes, public.num_features)
        x[known.nodes] = known.x.float()
        graph = planted_federation(view, with_own_rows(view, x), owner.new_empty(2, 0), owner, rng)
        held = (torch.isin(nodes, known.nodes) for nodes in graph.clients)
        train = tuple(mask if bool(mask.any()) else first for mask, first in zip(held, graph.train, strict=True))
        one_step = {"local_epochs": 1, "batch_size": public.num_nodes, "dropout": 0.0}
        bare = without_defense(view, MemoryMessages(()))
        planted = rehearsed(bare, replace(graph, train=train), [ModelUpdate], rng, rounds=1, **one_step)
        truth = torch.zeros(len(clients), len(known.nodes), dtype=torch.double)
        truth[torch.arange(len(chosen)), chosen] = 1
        present = torch.zeros(len(clients), public.num_features, dtype=torch.bool)
        present[torch.arange(len(chosen))] = words[chosen]
        lacking = (words & ~present.unsqueeze(1)).any(2)
        asked = (lacking | (truth > 0)).flatten()
        return Planted(planted, truth.flatten()[asked], torch.cartesian_prod(clients, known.nodes)[asked])


def _decays(view: View) -> bool:
    return view.public.structure.of(Training).weight_decay > 0


def _statistic(view: View) -> Tensor:
    """Return a statistic per client and word [K, F] that is about 1 for an absent word's row of the first update."""
    step = view.public.structure.of(Training).learning_rate
    models = next(model_rounds(view, 1))
    weight, _ = input_map(view, models.received)
    change, _ = input_map(view, models.change)
    step *= _left_by_clip(view, step, models.change.shape[1])
    if _decays(view):
        return -(change * weight.sign()).mean(2) / step
    return 1 - (change.square().mean(2) - model_noise_std(view, models) ** 2) / step**2


def _left_by_clip(view: View, step: float, dimensions: int) -> float:
    """Return the share of a first step of this size in all ``dimensions`` that a clip leaves."""
    clip = UploadClip.of(view, ModelUpdate)
    if clip.bound is not None:
        return min(1.0, clip.bound / step)
    if clip.length is None:
        return 1.0
    return min(1.0, clip.length / (step * math.pow(dimensions, 1 / clip.order)))


def _chance_absent(statistic: Tensor) -> Tensor:
    """Return the posterior probability [K, F] that entries of ``statistic`` belong to the upper of two Gaussians."""
    values = statistic.double()
    mean = torch.stack([values.max(), values.min()])
    spread = torch.full_like(mean, float(values.std().item()) / 2 + _LEAST_SPREAD)
    weight = torch.full_like(mean, 0.5)
    upper = torch.zeros_like(values)
    for _ in range(_EM_STEPS):
        score = (
            -((values.unsqueeze(2) - mean) / spread).square() / 2 + (weight / spread).log() - math.log(2 * math.pi) / 2
        )
        upper = (score[..., 0] - score[..., 1]).sigmoid()
        # Values beyond the upper mean belong to the upper Gaussian.
        upper = torch.where(values > mean[0], torch.maximum(upper, 1 - upper), upper)
        shares = torch.stack([upper, 1 - upper], 2)
        total = shares.sum((0, 1)).clamp(min=1e-9)
        mean = (shares * values.unsqueeze(2)).sum((0, 1)) / total
        spread = ((shares * (values.unsqueeze(2) - mean).square()).sum((0, 1)) / total).sqrt().clamp(min=_LEAST_SPREAD)
        weight = (total / values.numel()).clamp(1e-9, 1)
    return upper
