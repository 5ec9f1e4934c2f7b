"""Membership in training from uploads: which nodes' loss gradients an upload is made of.

The observer knows rows, labels and edges, and so the gradient that every known node's loss would have under the model
that a client received. A client's uploads are a weighted sum of these, with a weight for its training nodes and none
for all others (:mod:`fglaudit.attacks.models.loss_gradients`). The weights are solved for, none negative, client by
client; a node's score is the largest of them. No shadow model is trained. Where single uploads are not seen (secure
aggregation), the change of the global model is taken apart in their place.

Rows that the observer does not know are drawn from the prior: what their gradients leave in the uploads is noise to it.
``fglaudit run update-members`` measures it on Cora.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.modelled import about, change_clip, known_noise, on_gradients, sealed
from fglaudit.attacks.models.loss_gradients import Sums, gradients, unreadable_updates
from fglaudit.attacks.models.planting import PLAIN_STEPS, planted_twins
from fglaudit.attacks.models.shadow_federations import KnownGraph, few_candidates
from fglaudit.errors import FglauditError
from fglaudit.facts import Absent, Clipped, Fact, Rounded
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, NeighborSums, Payload
from fglaudit.rng import split
from fglaudit.view import View

ROUNDS = 10
STEPS = 150


def scaling_alone(fact: Fact) -> bool:
    """Whether loss weights can be read through ``fact``: errors of uploads and gradients, which average out, clips of
    whole changes or of losses, which scale gradients, and sealed messages. Rows and edges must be as they are known."""
    if about(fact, NeighborSums):
        return sealed(fact, NeighborSums)
    scaled = change_clip(fact, ModelUpdate) and isinstance(fact, Clipped) and fact.norm != "elementwise"
    sent = known_noise(fact, ModelUpdate) or (isinstance(fact, Rounded) and about(fact, ModelUpdate))
    gone = isinstance(fact, Absent) and about(fact, ModelUpdate)
    return sent or scaled or gone or sealed(fact, ModelUpdate) or on_gradients(fact)


def check_rounds(rounds: int) -> None:
    """Raise :class:`FglauditError` unless ``rounds`` is among those that are kept."""
    if not 1 <= rounds <= ROUNDS:
        raise FglauditError(
            f"rounds counts the uploads that are read, of the {ROUNDS} that are kept; got {rounds}; use 1 to {ROUNDS}"
        )


@dataclass(frozen=True)
class UpdateMembers(Attack):
    """Infer membership in training from uploads, taken apart into loss gradients of known nodes.

    Attributes:
        rounds: how many are read, from the first.
    """

    name: ClassVar[str] = "update-members"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    computed_from: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "training-membership"
    first_rounds: ClassVar[int | None] = ROUNDS
    on_request: ClassVar[bool] = True

    rounds: int = ROUNDS

    def __post_init__(self) -> None:
        check_rounds(self.rounds)

    def models(self, fact: Fact) -> bool:
        """See :func:`scaling_alone`."""
        return scaling_alone(fact)

    def unsupported(self, view: View) -> str | None:
        return unreadable_updates(view) or few_candidates(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        graph = KnownGraph.of(view, split(rng, "known graph"))
        x, y, edges = (part.to(device) for part in (graph.x, graph.y, graph.edges))
        rounds = tuple(gradients(view, x, y, edges, self.rounds))
        weights = Sums.of(x, edges, rounds).weights(STEPS).cpu().double()
        # Clients with fewer training nodes give each a larger weight: all are brought to one size.
        weights = weights / weights.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12)
        return Inference(type(self).quantity, graph.candidates, weights.amax(0)[graph.candidates])

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant nodes that were trained on, and twins of theirs with another label."""
        return planted_twins(view, rng, PLAIN_STEPS)
