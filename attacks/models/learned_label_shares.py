"""The label distribution of a client's training nodes, decoded from its uploads (see :mod:`.learned_properties`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.uploads.held import sending_clients
from fglaudit.attacks.models.learned_properties import LearnedProperty
from fglaudit.attacks.models.planted_properties import planted_clients
from fglaudit.attacks.models.property_decoder import DIRECTIONS, SKETCHES, deviations, level
from fglaudit.attacks.models.shadow_clients import ShadowClients, training_shares
from fglaudit.interfaces import Planted
from fglaudit.payloads import ModelUpdate
from fglaudit.rng import split
from fglaudit.view import View


@dataclass(frozen=True)
class LearnedLabelShares(LearnedProperty):
    """Decode how labels of training nodes are distributed at each client."""

    name: ClassVar[str] = "learned-label-shares"
    metric: ClassVar[str] = "overlap"
    quantity: ClassVar[str] = "training-labels"

    def answer(self, view: View, found: ShadowClients) -> Tensor:
        mean = level(found, found.shares, (SKETCHES, DIRECTIONS)).clamp(min=0)
        shares = mean / mean.sum().clamp(min=1e-12) + deviations(found, found.shares, (SKETCHES, DIRECTIONS))
        shares = shares.clamp(min=0)
        return shares / shares.sum(1, keepdim=True).clamp(min=1e-12)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients of very different classes."""
        planted, federation = planted_clients(view, split(rng, "plant"))
        clients = sending_clients(planted, ModelUpdate)
        return Planted(planted, torch.stack([training_shares(federation, k) for k in clients.tolist()]), clients)
