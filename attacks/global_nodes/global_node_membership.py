"""Whether a known node belongs to a client, from the client's global nodes and model.

Two scores, both relative to the other clients and summed over the first rounds: the likelihood of the node's label
under the uploaded model (evaluated without the graph: the node attends to itself and the client's global nodes), and
the cosine between the node's input representation and the mean of the client's global nodes, both centred. The mean
over a client's global nodes stands for its nodes, so that noise is averaged over clusters and rounds.

Where a defense adds noise or rounds, each score counts by its reliability, the share of its spread that is not noise:
it follows from how much the score changes when noise of the same size is added once more. Clips shorten what a client
sends, which changes no direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.adversary.modelled import about, decides, fewer_edges, message_clip, sealed
from fglaudit.adversary.planting import different_first
from fglaudit.adversary.uploads.held import (
    codebooks,
    input_map,
    missing_uploads,
    model_noise_std,
    model_rounds,
    one_other,
    one_sender,
)
from fglaudit.adversary.uploads.known_nodes import log_probabilities, unknown_architecture
from fglaudit.attacks.global_nodes.clusters import upload_error, uploaded_with_error
from fglaudit.attacks.global_nodes.planting import dealt_nodes, first_nodes, rehearsed_round
from fglaudit.facts import ROWS, Additive, Clipped, Fact, Field, Rounded
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.graph_transformer import Dropout
from fglaudit.payloads import GlobalNodes, ModelUpdate, Payload
from fglaudit.view import View

_NOTHING = 1e-6
_LEAST_RELIABLE = 0.02
"""Weight of a score that seems to be noise alone: it then still breaks ties."""


@dataclass(frozen=True)
class GlobalNodeMembership(Attack):
    """Infer which client holds a known node, from global nodes and models."""

    name: ClassVar[str] = "global-node-membership"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes, ModelUpdate)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "node-owner"
    first_rounds: ClassVar[int | None] = 5

    def models(self, fact: Fact) -> bool:
        """Noise, rounding and clips of what is uploaded, and rows that were made random, as the known ones then are."""
        if fact.target == ROWS:
            return decides(fact)
        up = isinstance(fact.target, Field) and fact.target.direction == "up"
        noise = isinstance(fact, Additive) and fact.distribution in ("gaussian", "laplace", "uniform")
        clip = isinstance(fact, Clipped) and fact.per == "message"
        changes = about(fact, ModelUpdate) and up and (noise or clip or isinstance(fact, Rounded))
        sent = uploaded_with_error(fact) or message_clip(fact, GlobalNodes)
        return fewer_edges(fact) or sent or changes or sealed(fact, ModelUpdate)

    def unsupported(self, view: View) -> str | None:
        if len(view.auxiliary.nodes) < 2:
            return "owners are asked of rows the observer knows; give it some, e.g. auxiliary: 0.1"
        known = torch.cat([view.auxiliary.x, view.auxiliary.y.unsqueeze(1)], 1)
        if bool((known == known[:1]).all()):
            return "all known nodes have the same row and label"
        why = one_other(view) or missing_uploads(view, GlobalNodes, ModelUpdate) or unknown_architecture(view)
        return why or one_sender(view, GlobalNodes)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        books = codebooks(view, type(self).first_rounds)
        known = view.auxiliary
        labelled = known.y.clamp(min=0)
        loss = torch.zeros(len(books.clients), len(known.nodes))
        closeness, again, plain = (torch.zeros_like(loss) for _ in range(3))
        std = upload_error(view, books)
        for index, models in enumerate(model_rounds(view, len(books.uploaded))):
            after = models.received + models.change
            loss += _likelihood(view, after, books.uploaded[index], labelled) * (known.y >= 0)
            closeness += _closeness(view, models.received, books.uploaded[index])
            error = model_noise_std(view, models)
            if std > 0 or error > 0:
                models_again = after + error * torch.randn(after.shape, generator=rng)
                nodes = books.uploaded[index] + std * torch.randn(books.uploaded[index].shape, generator=rng)
                again += _likelihood(view, models_again, nodes, labelled) * (known.y >= 0)
                plain += _closeness(view, models.received, nodes)
        loss, closeness = _relative(loss), _relative(closeness)
        if bool((again != 0).any()):
            loss = loss * _reliability(loss, _relative(again))
            closeness = closeness * _reliability(closeness, _relative(plain))
        score = loss + closeness
        return Inference(type(self).quantity, torch.cartesian_prod(books.clients, known.nodes), score.flatten())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients that see no node but one of the known: the global node that it reaches becomes its image. The
        rows and labels of these are as different as the known ones are. Asked about are nodes of another row and label:
        what is sent is the same of nodes with equal ones."""
        known, owner, clients = view.auxiliary, dealt_nodes(view), codebooks(view, 1).clients
        order = torch.randperm(len(known.nodes), generator=rng)
        order = order[different_first(known.x[order])]
        order = order[different_first(known.y[order].unsqueeze(1))]
        held = order[torch.arange(len(clients)) % len(order)]
        nodes = first_nodes(owner, clients)
        x = torch.zeros(len(owner), view.public.num_features)
        y = torch.zeros_like(owner)
        x[nodes], y[nodes] = known.x[held].to(x), known.y[held].clamp(min=0)
        # Global nodes that start at nothing show nothing else; one large step makes the model show the label.
        planted = rehearsed_round(
            view, x, owner, rng, y=y, momentum=0.0, global_scale=_NOTHING, dropout=0.0, learning_rate=0.02
        )
        truth = torch.zeros(len(clients), len(order), dtype=torch.double)
        truth[torch.arange(len(clients)), held] = 1
        other_row = (known.x[held].unsqueeze(1) != known.x).any(2)
        other_label = known.y[held].unsqueeze(1) != known.y
        both, either = other_row & other_label, other_row | other_label
        asked = ((both if bool(both.any()) else either) | (truth > 0)).flatten()
        return Planted(planted, truth.flatten()[asked], torch.cartesian_prod(clients, known.nodes)[asked])


def _likelihood(view: View, models: Tensor, global_nodes: Tensor, labels: Tensor) -> Tensor:
    """Return the log likelihood [K, A] of the ``labels`` [A] of the known nodes."""
    chance = log_probabilities(view, models, global_nodes, view.auxiliary.x, Dropout(0, None))
    return chance.gather(2, labels.view(1, -1, 1).expand(len(models), -1, 1)).squeeze(2)


def _reliability(score: Tensor, again: Tensor) -> float:
    """Return the share of the spread of ``score`` [K, A] that is not noise, if ``again`` has twice its noise.

    With a signal of variance S and noise of variance E the correlation of the two is the root of (S + E) / (S + 2 E).
    """
    correlation = float((score * again).mean().item()) / max(1e-12, float((score.std() * again.std()).item()))
    return min(1.0, max(_LEAST_RELIABLE, 2 - 1 / max(correlation, 1e-6) ** 2))


def _closeness(view: View, models: Tensor, global_nodes: Tensor) -> Tensor:
    """Return the centred cosines [K, A] between known rows and the means of the clients' ``global_nodes`` [K, g, d]."""
    weight, _ = input_map(view, models)
    rows = view.auxiliary.x.to(weight)
    offset = (rows - rows.mean(0)) @ weight
    center = global_nodes.mean(1)
    direction = center - center.mean(0)
    return torch.einsum("kad,kd->ka", normalize(offset, dim=2), normalize(direction, dim=1))


def _relative(score: Tensor) -> Tensor:
    """Return ``score`` [K, A] relative to the mean over clients, of unit spread over all pairs."""
    score = score - score.mean(0)
    return score / score.std().clamp(min=1e-12)
