"""Which client holds a known node: the one whose upload makes the model surer of the node's label.

After "Cross-client membership inference" (arXiv 2507.19964), which attributes training samples to clients by comparing
the clients' models on them. Here models of one round are compared, and each with the model that it started from: the
gain of client k at node i is by how much the log probability of the node's label grows from the received model to the
uploaded one. What all clients gain there says nothing of who holds the node and is taken off; every client's gains are
brought to one spread, and rounds are added up. No shadow model is trained.

The observer sees single uploads and knows rows, labels and edges. Under secure aggregation it sees none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from fglaudit.adversary.planting import dealt
from fglaudit.adversary.uploads.held import (
    check_rounds,
    missing_uploads,
    one_sender,
    sending_clients,
    sent_models,
    unknown_changes,
)
from fglaudit.attacks.models.likelihood_ratio import log_chance
from fglaudit.attacks.models.planting import LEARNED, taught_view, without_edges
from fglaudit.attacks.models.shadow_federations import KnownGraph, evaluated, unknown_models
from fglaudit.facts import ROWS, Fact, is_built_in
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.view import Auxiliary, View

ROUNDS = 20
_PLANTED_EACH = 2
_PLANTED_ROUNDS = 3
"""Fewer than to learn by heart: once all know all nodes, uploads say nothing of whose they are."""


@dataclass(frozen=True)
class ClientGains(Attack):
    """Infer which client holds a node, from what single uploads add to the confidence in its label.

    Attributes:
        rounds: uploads that are read at most, from the first, when models change most.
    """

    name: ClassVar[str] = "client-gains"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "node-owner"
    first_rounds: ClassVar[int | None] = ROUNDS
    on_request: ClassVar[bool] = True

    rounds: int = ROUNDS

    def __post_init__(self) -> None:
        check_rounds(self.rounds, ROUNDS)

    def models(self, fact: Fact) -> bool:
        """Whatever is built in and leaves rows alone: uploads are read as they came, and only their order counts."""
        return is_built_in(fact) and fact.target != ROWS

    def unsupported(self, view: View) -> str | None:
        why = missing_uploads(view, ModelUpdate) or unknown_changes(view) or unknown_models(view)
        return why or one_sender(view, ModelUpdate)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        graph = KnownGraph.of(view, split(rng, "known graph"))
        clients, nodes = sending_clients(view, ModelUpdate), graph.candidates
        total = torch.zeros(view.public.num_clients, len(nodes), dtype=torch.double)
        for senders, models in sent_models(view, self.rounds):
            vectors = torch.cat([models.received, models.received + models.change])
            logits = evaluated(view, graph, vectors, device)[:, nodes]
            before, after = log_chance(logits, graph.y[nodes]).view(2, len(senders), -1)
            gain = after - before
            gain = gain - gain.mean(0)
            total[senders] += gain / gain.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12)
            clients = torch.unique(torch.cat([clients, senders]))
        return Inference(type(self).quantity, torch.cartesian_prod(clients, nodes), total[clients].flatten())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant nodes with words of their own, all in training, at clients that learn their labels by heart: at two of
        them at least."""
        rng, public = split(rng, "plant"), view.public
        bare, others = without_edges(view)
        chosen = others[torch.randperm(len(others), generator=rng)]
        chosen = chosen[: min(_PLANTED_EACH * public.num_clients, max(2, public.num_features // 2))]
        words = torch.arange(public.num_features) % len(chosen)
        rows = (words == torch.arange(len(chosen))[:, None]).float()
        x = torch.zeros(public.num_nodes, public.num_features)
        x[chosen] = functional.normalize(rows, p=1) if public.features is FeatureKind.SCALED_BINARY else rows
        y = torch.full((public.num_nodes,), -1)
        y[chosen] = torch.arange(len(chosen)) % public.num_classes
        bare = dataclasses.replace(bare, auxiliary=Auxiliary(others, x[others], y[others]))
        graph = KnownGraph.of(bare, split(rng, "known graph"))
        settings, owner = {**LEARNED, "rounds": _PLANTED_ROUNDS}, dealt(bare, others)
        owner[chosen] = dealt(bare, chosen)[chosen]
        planted, federation = taught_view(bare, graph, chosen, rng, settings, owner=owner)
        clients = sending_clients(planted, ModelUpdate)
        held = torch.stack([torch.isin(chosen, federation.clients[k]) for k in clients.tolist()])
        return Planted(planted, held.double().flatten(), torch.cartesian_prod(clients, chosen))
