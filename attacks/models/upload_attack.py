"""What attacks have in common that take uploads apart into loss gradients (:mod:`.loss_gradients`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from fglaudit.adversary.modelled import about, change_clip, known_error, on_gradients, sealed
from fglaudit.adversary.uploads.held import check_rounds
from fglaudit.attacks.models.adam_gradients import price, with_sizes
from fglaudit.attacks.models.loss_gradients import GradientSums
from fglaudit.attacks.models.planting import ADAM_STEPS, PLAIN_STEPS
from fglaudit.facts import Absent, Clipped, Fact
from fglaudit.interfaces import Attack
from fglaudit.payloads import ModelUpdate, NeighborSums, Payload
from fglaudit.structure import Training
from fglaudit.view import View

OPTIMIZERS = ("sgd", "adam")
"""Whose steps are read as gradients."""
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


class Explained(NamedTuple):
    """The gradients' ``sums``, the loss weights [K, N] that explain uploads best, and the share that these leave
    unexplained."""

    sums: GradientSums
    weights: Tensor
    missed: float

    @staticmethod
    def of(view: View, x: Tensor, y: Tensor, edges: Tensor, rounds: int, hidden: Tensor | None = None) -> Explained:
        """Explain the first ``rounds`` uploads if ``edges`` [2, E] carry rows [N, F] and labels [N].

        Args:
            hidden: columns [c] that are not asked, since ``x`` does not hold them.
        """
        sums, cost = GradientSums.over(view, x, y, edges, rounds), 0.0
        if with_adam(view):
            sums, cost = with_sizes(sums, view.public.num_clients), price(sums, view.public.num_clients)
        asked = sums if hidden is None else sums.without(hidden)
        weights = asked.weights(STEPS, cost)
        return Explained(sums, weights, asked.missed(weights))


def with_adam(view: View) -> bool:
    """Whether clients step with Adam, which shows signs of gradients alone."""
    return view.public.structure.of(Training).optimizer == "adam"


def taught(view: View) -> Mapping[str, Any]:
    """Return the hyperparameters under which self-tests train."""
    return ADAM_STEPS if with_adam(view) else PLAIN_STEPS
