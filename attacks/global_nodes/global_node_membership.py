"""Whether a known node belongs to a client, from the client's global nodes and model.

Two scores, both relative to the other clients and summed over the first rounds: the likelihood of the node's label
under the uploaded model (evaluated without the graph: the node attends to itself and the client's global nodes), and
the cosine between the node's input representation and the mean of the client's global nodes, both centred. The mean
over a client's global nodes stands for its nodes, so that noise is averaged over clusters and rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.adversary.known_nodes import log_probabilities, unknown_architecture
from fglaudit.adversary.uploads import codebooks, input_map, missing_uploads, model_rounds
from fglaudit.attacks.global_nodes.planting import planted_rounds
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.graph_transformer import Dropout
from fglaudit.payloads import GlobalNodes, ModelUpdate, Payload
from fglaudit.view import View


@dataclass(frozen=True)
class GlobalNodeMembership(Attack):
    """Infer membership from global nodes and models."""

    name: ClassVar[str] = "global-node-membership"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes, ModelUpdate)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "membership"
    first_rounds: ClassVar[int | None] = 5

    def unsupported(self, view: View) -> str | None:
        if len(view.auxiliary.nodes) < 2:
            return "membership is asked of rows the observer knows; give it some, e.g. auxiliary: 0.1"
        return missing_uploads(view, GlobalNodes, ModelUpdate) or unknown_architecture(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        books = codebooks(view, type(self).first_rounds)
        known = view.auxiliary
        labelled = known.y.clamp(min=0)
        loss = torch.zeros(len(books.clients), len(known.nodes))
        closeness = torch.zeros_like(loss)
        for index, models in enumerate(model_rounds(view, len(books.uploaded))):
            after = models.received + models.change
            chance = log_probabilities(view, after, books.uploaded[index], known.x, Dropout(0, None))
            loss += chance.gather(2, labelled.view(1, -1, 1).expand(len(after), -1, 1)).squeeze(2) * (known.y >= 0)
            closeness += _closeness(view, models.received, books.uploaded[index])
        score = _relative(loss) + _relative(closeness)
        return Inference(type(self).quantity, torch.cartesian_prod(books.clients, known.nodes), score.flatten())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients whose only node is a known one: all their global nodes lie on it."""
        count = len(view.auxiliary.nodes)

        def move(models: Tensor, global_nodes: Tensor) -> tuple[Tensor, Tensor]:
            weight, bias = input_map(view, models)
            nodes = torch.randperm(count, generator=rng)[: len(models)]
            held = nodes[torch.arange(len(models)) % len(nodes)]
            rows = view.auxiliary.x.to(weight)
            center = rows.mean(0) @ weight + bias.squeeze(1)
            place = (rows[held].unsqueeze(1) @ weight + bias).squeeze(1)
            # Far outside, so that the model, which is random here, does not outweigh it.
            far = center + 1000 * (place - center)
            truth = torch.zeros(len(models), count, dtype=torch.double)
            truth[torch.arange(len(models)), held] = 1
            return far.unsqueeze(1).expand_as(global_nodes).clone(), truth.flatten()

        planted, truth = planted_rounds(view, rng, move)
        return Planted(planted, truth, torch.cartesian_prod(codebooks(planted, 1).clients, view.auxiliary.nodes))


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
