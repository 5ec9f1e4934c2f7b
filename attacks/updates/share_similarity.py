"""Which clients have alike data, from the shares of the classes that steps of Adam tell of each (:mod:`.adam_shares`).

The nearer two clients' inferred distributions are, by total variation, the more alike they are. Where it applies it
says more than the cosine of the changes (:mod:`.update_similarity`), in which all units weigh alike, whichever classes
they tell apart.

What is observed: whoever sees single uploads of several clients has this from the first round on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.uploads.held import sending_clients
from fglaudit.attacks.updates.adam_shares import AdamShares, planted_steps, shares_from_moves
from fglaudit.attacks.updates.client_pairs import QUANTITY, few_senders, pair_scores, planted_pairs
from fglaudit.interfaces import Inference, Planted
from fglaudit.payloads import ModelUpdate
from fglaudit.rng import split
from fglaudit.view import View


@dataclass(frozen=True)
class ShareSimilarity(AdamShares):
    """Rank pairs of clients by how near the label distributions are that the moves of their last layers tell."""

    name: ClassVar[str] = "share-similarity"
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = QUANTITY

    def unsupported(self, view: View) -> str | None:
        return super().unsupported(view) or few_senders(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found = shares_from_moves(view)
        assert found is not None  # several clients upload
        clients, shares = found
        shares = shares.to(device, torch.double)
        return pair_scores(clients, -torch.cdist(shares, shares, p=1).cpu() / 2)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant one round of steps that moves one class of every client up, the same class two by two."""
        pairs, same, kind = planted_pairs(sending_clients(view, ModelUpdate), view.public.num_classes)
        moved, _ = planted_steps(view, kind, split(rng, "plant"))
        return Planted(moved, same, pairs)
