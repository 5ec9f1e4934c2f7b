"""Membership in training by relative likelihood with few reference models (RMIA; Zarifzadeh et al., ICML 2024).

Few reference models, two by default, train as in :mod:`fglaudit.attacks.models.lira`; every node is in about half of
them. A node's probability of its label under the attacked model is divided by the mean under the references, and so is
that of population nodes, which are outside of every loss: the observer's own labelled nodes that do not train. Where it
has none the candidates stand for them. The score is the share of the population that a node beats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.attacks.models.likelihood_ratio import log_chance, relative_score
from fglaudit.attacks.models.planting import planted_twins
from fglaudit.attacks.models.shadow_federations import (
    check_rates,
    few_others,
    train_shadows,
    unknown_models,
    untrainable,
)
from fglaudit.errors import FglauditError
from fglaudit.facts import Fact, Sealed, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.view import View

_FEWEST_POPULATION = 20


@dataclass(frozen=True)
class Rmia(Attack):
    """Infer membership in training from the last model, with few reference models.

    Attributes:
        references: models that are trained.
        training_share, batched, fpr: see :class:`fglaudit.attacks.models.lira.Lira`.
    """

    name: ClassVar[str] = "rmia"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "training-membership"
    last_rounds: ClassVar[int | None] = 1
    on_request: ClassVar[bool] = True

    references: int = 2
    training_share: float = 0.5
    batched: bool = False
    fpr: float | None = None

    def __post_init__(self) -> None:
        if self.references < 2:
            raise FglauditError(
                f"a node must be in some reference models and not in others; got {self.references}; use references: 2"
            )
        check_rates(self.training_share, self.fpr)

    def models(self, fact: Fact) -> bool:
        """Everything that is built in: reference models are trained through a fresh bind of the same defense.

        As one batch they allow for what does not change the training: messages that travel sealed.
        """
        return isinstance(fact, Sealed) if self.batched else is_built_in(fact)

    def unsupported(self, view: View) -> str | None:
        missing = unknown_models(view) or untrainable(view, self.batched)
        return missing or few_others(view, self.fpr, self.training_share)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        shadows = train_shadows(view, self.references, self.training_share, rng, device, batched=self.batched)
        rest = shadows.graph.own_rest
        population = rest if len(rest) >= _FEWEST_POPULATION else shadows.nodes
        target, references = (log_chance(part, shadows.graph.y) for part in (shadows.target, shadows.logits))
        nodes = shadows.nodes
        score = relative_score(target[nodes], references[:, nodes], target[population], references[:, population])
        return Inference(type(self).quantity, nodes, score)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant nodes that were learned by heart, and twins of theirs with another label."""
        return planted_twins(view, rng)
