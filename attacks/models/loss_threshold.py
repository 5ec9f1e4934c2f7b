"""Membership in training by the loss alone (Yeom et al., CSF 2018): what a model is sure of, it was trained on.

Nothing is trained. It does not tell a node that was learned by heart from one that any model gets right, which is what
:mod:`fglaudit.attacks.models.lira` adds; beside it, it shows what shadow models are worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.attacks.models.likelihood_ratio import scaled_confidence
from fglaudit.attacks.models.planting import planted_twins
from fglaudit.attacks.models.shadow_federations import check_rates, few_others, target_outputs, unknown_models
from fglaudit.facts import Fact, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.view import View

_HALF = 0.5
"""Share of the nodes that is taken to train by an observer who has none of its own."""


@dataclass(frozen=True)
class LossThreshold(Attack):
    """Infer membership in training from the last model's confidence in a node's label.

    Attributes:
        fpr: see :class:`fglaudit.attacks.models.lira.Lira`.
    """

    name: ClassVar[str] = "loss-threshold"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "training-membership"
    last_rounds: ClassVar[int | None] = 1
    on_request: ClassVar[bool] = True

    fpr: float | None = None

    def __post_init__(self) -> None:
        check_rates(None, self.fpr)

    def models(self, fact: Fact) -> bool:
        """Everything that is built in: the model is read as it came, and its order of nodes is all that counts."""
        return is_built_in(fact)

    def unsupported(self, view: View) -> str | None:
        return unknown_models(view) or few_others(view, self.fpr, _HALF)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        graph, logits = target_outputs(view, rng, device)
        nodes = graph.candidates
        return Inference(type(self).quantity, nodes, scaled_confidence(logits[nodes], graph.y[nodes]))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant nodes that were learned by heart, and twins of theirs with another label."""
        return planted_twins(view, rng)
