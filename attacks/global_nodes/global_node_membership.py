"""Whether a known node belongs to a client, from the client's global nodes and model.

Two scores, both relative to the other clients and summed over the first rounds: the likelihood of the node's label
under the uploaded model (evaluated without the graph: the node attends to itself and the client's global nodes), and
the cosine between the node's input representation and the mean of the client's global nodes, both centred. The mean
over a client's global nodes stands for its nodes, so that noise is averaged over clusters and rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.adversary.known_nodes import log_probabilities, unknown_architecture
from fglaudit.adversary.uploads import codebooks, input_map, missing_uploads, model_rounds
from fglaudit.attacks.global_nodes.planting import dealt_nodes, first_nodes, rehearsed_round
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.graph_transformer import Dropout
from fglaudit.payloads import GlobalNodes, ModelUpdate, Payload
from fglaudit.view import View

_NOTHING = 1e-6


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
        """Plant clients that see no node but one of the known: the global node that it reaches becomes its image."""
        known, owner, clients = view.auxiliary, dealt_nodes(view), codebooks(view, 1).clients
        order = torch.randperm(len(known.nodes), generator=rng)
        held = order[torch.arange(len(clients)) % len(order)]
        nodes = first_nodes(owner, clients)
        x = torch.zeros(len(owner), view.public.num_features)
        y = torch.zeros_like(owner)
        x[nodes], y[nodes] = known.x[held].to(x), known.y[held].clamp(min=0)
        # Global nodes that start at nothing show nothing else; one large step makes the model show the label.
        settings: dict[str, Any] = {"momentum": 0.0, "global_scale": _NOTHING, "dropout": 0.0, "learning_rate": 0.1}
        planted = rehearsed_round(view, x, owner, rng, y=y, **settings)
        truth = torch.zeros(len(clients), len(order), dtype=torch.double)
        truth[torch.arange(len(clients)), held] = 1
        return Planted(planted, truth.flatten(), torch.cartesian_prod(clients, known.nodes))


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
