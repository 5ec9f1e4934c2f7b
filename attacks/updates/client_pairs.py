"""What attacks on client similarity share: pairs and their scores, whose uploads they need, a planted leak.

The quantity is :mod:`fglaudit.quantities.clients.client_similarity`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import about, change_clip, fresh_error, sealed
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.adversary.uploads.held import missing_uploads, sending_clients, sent_models, unknown_changes
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.facts import Absent, Fact, Field, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.structure import Models
from fglaudit.view import View

QUANTITY = "client-similarity"
FEWEST = 3
"""Clients of which one pair can be nearer than another."""
TOO_FEW = "pairs of clients are compared with each other, of three clients at least"


@dataclass(frozen=True)
class ClientPairs(Attack):
    """Rank pairs of clients by what they upload; subclasses say how."""

    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = QUANTITY

    def models(self, fact: Fact) -> bool:
        """Nothing is assumed of how a change comes about, but that like data make like ones; fresh errors and clips
        change all pairs alike, and of clients that are absent for a round others are left."""
        sent = fresh_error(fact, ModelUpdate) or change_clip(fact, ModelUpdate) or sealed(fact, ModelUpdate)
        gone = isinstance(fact, Absent) and about(fact, ModelUpdate)
        return sent or gone or (is_built_in(fact) and not isinstance(fact.target, Field))

    def unsupported(self, view: View) -> str | None:
        return missing_uploads(view, ModelUpdate) or unknown_changes(view) or few_senders(view)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant one round in which clients change their models two by two in the same way."""
        clients = sending_clients(view, ModelUpdate)
        pairs, same, kind = planted_pairs(clients)
        size = sum(math.prod(shape) for shape in view.public.layout.values())
        change = torch.randn(len(clients), size, generator=rng)[kind]
        received = torch.zeros_like(change)  # what they became is how they changed
        return Planted(uploads_of(view, clients, received, change), same, pairs)


def uploads_of(view: View, clients: Tensor, received: Tensor, change: Tensor) -> View:
    """Return a view of one round in which ``clients`` [K] receive models and change them, [K, D] each, in the clear."""
    server = torch.full_like(clients, SERVER)
    sent = received + change if view.public.structure.of(Models).upload == "weights" else change
    batches = (
        MessageBatch(0, server, clients, ModelUpdate(received)),
        MessageBatch(1, clients, server, ModelUpdate(sent)),
    )
    return without_defense(view, MemoryMessages(batches))


@once_per_view
def few_senders(view: View) -> str | None:
    """Return why there are no pairs to compare, or None: fewer than three clients, in all rounds together, upload."""
    seen = torch.empty(0, dtype=torch.long)
    for clients, _ in sent_models(view):
        seen = torch.unique(torch.cat([seen, clients]))
        if len(seen) >= FEWEST:
            return None
    return f"{TOO_FEW}; the observer sees uploads of {len(seen)}"


def planted_pairs(clients: Tensor, most: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return all pairs of ``clients`` [K] as subjects [S, 2], which of them are of one kind [S], and the kind of every
    client [K]: two by two, of ``most`` kinds."""
    kind = torch.arange(len(clients)) // 2 % (most or len(clients))
    pairs = torch.combinations(torch.arange(len(clients)))
    return clients[pairs], (kind[pairs[:, 0]] == kind[pairs[:, 1]]).double(), kind


def pair_scores(clients: Tensor, likeness: Tensor) -> Inference:
    """Return the answer about all pairs of ``clients`` [K], ascending, from the ``likeness`` [K, K] of each to each;
    scores are centred, as a pair of which an answer says nothing counts as 0."""
    pairs = torch.combinations(torch.arange(len(clients)))
    scores = likeness.double()[pairs[:, 0], pairs[:, 1]]
    return Inference(QUANTITY, clients[pairs], scores - scores.quantile(0.5))
