"""What attacks on models of classifiers over public codes share: what they read, and where they can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.attacks.updates.code_gradients import KEPT, unreadable_codes
from fglaudit.attacks.updates.planted_losses import models_losses
from fglaudit.facts import Fact
from fglaudit.interfaces import Attack
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.view import View


@dataclass(frozen=True)
class CodeAttack(Attack):
    """Read the part of nodes' codes in models (:mod:`fglaudit.attacks.updates.code_gradients`)."""

    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    first_rounds: ClassVar[int | None] = KEPT

    def models(self, fact: Fact) -> bool:
        return models_losses(fact)

    def unsupported(self, view: View) -> str | None:
        return unreadable_codes(view)
