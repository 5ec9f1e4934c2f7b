"""Labels of training nodes from the models of classifiers over public codes.

A training node's part in the gradients is its predicted probabilities less its one-hot label: the one negative entry
names the label (:mod:`fglaudit.attacks.updates.code_gradients`). That the signs of a classifier's gradient give the
label away is known of single samples (iDLG: Zhao et al. 2020); here public inputs give them node by node, from
single clients' uploads or from the mean of all. Labels that were found count as known, and all other nodes get what
label propagation over the known edges makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.known_labels import with_labels
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.attacks.updates.code_attack import CodeAttack
from fglaudit.attacks.updates.code_gradients import code_gradients
from fglaudit.attacks.updates.planted_losses import planted_losses
from fglaudit.interfaces import Inference, Planted
from fglaudit.view import View


@dataclass(frozen=True)
class CodeLabels(CodeAttack):
    """Infer labels from the signs of training nodes' parts in models."""

    name: ClassVar[str] = "code-labels"
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        nodes, y = code_gradients(view, device).labels()
        others = (~own_nodes(view)).nonzero().squeeze(1)
        return Inference(self.quantity, others, propagate_labels(with_labels(view, nodes, y), others))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant training nodes, and ask for their labels."""
        planted = planted_losses(view, rng)
        return Planted(planted.view, planted.labels, planted.trained)
