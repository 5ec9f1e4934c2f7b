"""Membership in training from the models of classifiers over public codes: whose known vector the gradients hold.

No row, no label and no shadow model is needed, and no single client's upload: a client that knows the edges finds who
trains anywhere in the mean of all models (:mod:`fglaudit.attacks.updates.code_gradients`). A node's score is the power
of its part in the changes. Nodes with equal codes, as twins in a graph have after any number of steps, have one score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.attacks.updates.code_gradients import KEPT, code_gradients, unreadable_codes
from fglaudit.attacks.updates.planted_losses import models_losses, planted_losses
from fglaudit.facts import Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.view import View


@dataclass(frozen=True)
class CodeMembers(Attack):
    """Infer membership in training from the part of a node's codes in models."""

    name: ClassVar[str] = "code-members"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "training-membership"
    first_rounds: ClassVar[int | None] = KEPT

    def models(self, fact: Fact) -> bool:
        return models_losses(fact)

    def unsupported(self, view: View) -> str | None:
        return unreadable_codes(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        others = (~own_nodes(view)).nonzero().squeeze(1)
        return Inference(self.quantity, others, code_gradients(view, device).power[others])

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant training nodes, and as many that do not train."""
        planted = planted_losses(view, rng)
        members = torch.isin(planted.asked, planted.trained).double()
        return Planted(planted.view, members, planted.asked)
