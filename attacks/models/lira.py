"""Membership in training by the likelihood ratio of shadow models (LiRA; Carlini et al., S&P 2022, algorithm 1).

Who knows rows, labels and edges trains the protocol itself many times, with each node in about a known share of the
trainings, and asks under which of the two Gaussians of shadow models the attacked model's confidence in the node's
label is likelier. The score is :mod:`fglaudit.attacks.models.likelihood_ratio`, the training
:mod:`fglaudit.attacks.models.shadow_federations`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fglaudit.attacks.models.likelihood_ratio import offline_score, online_score, scaled_confidence
from fglaudit.attacks.models.planting import planted_twins
from fglaudit.attacks.models.shadow_federations import (
    check_rates,
    few_others,
    needed_shadows,
    train_shadows,
    training_share,
    unknown_models,
    untrainable,
)
from fglaudit.errors import FglauditError
from fglaudit.facts import Fact, Sealed, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.view import View

Variant = Literal["online", "offline"]
_EACH = 2
"""Fewest shadow models with and without a node: less has no spread."""


@dataclass(frozen=True)
class Lira(Attack):
    """Infer membership in training from the last model, with shadow models.

    Attributes:
        shadows: models that are trained; the larger the training share is off one half, the more it takes.
        variant: "online": with and without each node; "offline": those without it alone.
        training_share: assumed share of the nodes that train; an observer with nodes of its own takes theirs.
        batched: train them as one batch, which is far quicker and goes through no defense; false: the protocol trains
            each of them, through a fresh bind of the public defense.
        fpr: false-positive rate that is to be read off, e.g. 0.01: with too few nodes for it the attack is refused.
    """

    name: ClassVar[str] = "lira"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "training-membership"
    last_rounds: ClassVar[int | None] = 1
    on_request: ClassVar[bool] = True

    shadows: int = 16
    variant: Variant = "online"
    training_share: float = 0.5
    batched: bool = False
    fpr: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.training_share, self.fpr)
        if (least := needed_shadows(self.training_share, _EACH)) > self.shadows:
            raise FglauditError(
                f"{_too_few(self.training_share, least)}; got {self.shadows}; use shadows: {least} or more"
            )

    def models(self, fact: Fact) -> bool:
        """Everything that is built in: shadow models are trained through a fresh bind of the same defense.

        As one batch they allow for what does not change the training: messages that travel sealed.
        """
        return isinstance(fact, Sealed) if self.batched else is_built_in(fact)

    def unsupported(self, view: View) -> str | None:
        if (missing := unknown_models(view) or untrainable(view, self.batched)) is not None:
            return missing
        share = training_share(view, self.training_share)
        least = needed_shadows(share, _EACH)
        if self.shadows >= least:
            return few_others(view, self.fpr, self.training_share)
        return f"{_too_few(share, least)}; got {self.shadows}; use shadows: {least}"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        shadows = train_shadows(view, self.shadows, self.training_share, rng, device, batched=self.batched)
        labels = shadows.graph.y[shadows.nodes]
        target = scaled_confidence(shadows.target[shadows.nodes], labels)
        others = scaled_confidence(shadows.logits[:, shadows.nodes], labels)
        ratio = online_score if self.variant == "online" else offline_score
        return Inference(type(self).quantity, shadows.nodes, ratio(target, others, shadows.members))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant nodes that were learned by heart, and twins of theirs with another label."""
        return planted_twins(view, rng)


def _too_few(share: float, least: int) -> str:
    return (
        f"with {share:.3g} of the nodes in training it takes {least} shadow models, {_EACH} with and without each node"
    )
