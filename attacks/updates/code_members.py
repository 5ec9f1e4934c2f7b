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
from fglaudit.attacks.updates.code_attack import CodeAttack
from fglaudit.attacks.updates.code_gradients import code_gradients
from fglaudit.attacks.updates.planted_losses import planted_losses
from fglaudit.interfaces import Inference, Planted
from fglaudit.view import View


@dataclass(frozen=True)
class CodeMembers(CodeAttack):
    """Infer membership in training from the part of a node's codes in models."""

    name: ClassVar[str] = "code-members"
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "training-membership"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        others = (~own_nodes(view)).nonzero().squeeze(1)
        return Inference(self.quantity, others, code_gradients(view, device).power[others])

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant training nodes, and as many that do not train."""
        planted = planted_losses(view, rng)
        members = torch.isin(planted.asked, planted.trained).double()
        return Planted(planted.view, members, planted.asked)
