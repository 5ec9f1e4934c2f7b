"""What attacks have in common that take uploads apart into loss gradients (:mod:`.loss_gradients`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.adversary.modelled import about, change_clip, known_error, on_gradients, sealed
from fglaudit.adversary.uploads.held import check_rounds
from fglaudit.facts import Absent, Clipped, Fact
from fglaudit.interfaces import Attack
from fglaudit.payloads import ModelUpdate, NeighborSums, Payload

ROUNDS = 10
STEPS = 150
"""Of the descent to the loss weights."""


@dataclass(frozen=True)
class UploadAttack(Attack):
    """Reads the first uploads as sums of loss gradients.

    Attributes:
        rounds: how many are read, from the first.
    """

    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    computed_from: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "auc"
    first_rounds: ClassVar[int | None] = ROUNDS
    on_request: ClassVar[bool] = True

    rounds: int = ROUNDS

    def __post_init__(self) -> None:
        check_rounds(self.rounds, ROUNDS)

    def models(self, fact: Fact) -> bool:
        """Of errors of uploads and gradients, which average out, of clips of whole changes or of losses, which scale
        gradients, and of sealed messages. Rows and edges must be as they are known."""
        if about(fact, NeighborSums):
            return sealed(fact, NeighborSums)
        scaled = change_clip(fact, ModelUpdate) and isinstance(fact, Clipped) and fact.norm != "elementwise"
        sent = known_error(fact, ModelUpdate)
        gone = isinstance(fact, Absent) and about(fact, ModelUpdate)
        return sent or scaled or gone or sealed(fact, ModelUpdate) or on_gradients(fact)
