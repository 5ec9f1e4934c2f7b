"""What an attack can be after: one quantity per file, with its truth, its control and its score."""

from __future__ import annotations

from fglaudit.errors import unknown
from fglaudit.quantities.attributes import Attributes
from fglaudit.quantities.base import (
    Attempt,
    Comparison,
    InferredQuantity,
    ObserverTruth,
    Quantity,
    Question,
    Result,
    Scores,
)
from fglaudit.quantities.centroids import Centroids
from fglaudit.quantities.edges import Edges
from fglaudit.quantities.features import Features
from fglaudit.quantities.global_nodes import GlobalNodeValues
from fglaudit.quantities.held_rows import HeldRows
from fglaudit.quantities.label_distributions import LabelDistributions
from fglaudit.quantities.labels import Labels
from fglaudit.quantities.layer_inputs import LayerInputs
from fglaudit.quantities.layer_words import LayerWords
from fglaudit.quantities.linkage import Linkage
from fglaudit.quantities.membership import Membership
from fglaudit.quantities.neighboring_clients import NeighboringClients
from fglaudit.quantities.norms import L1Norms, SquaredNorms
from fglaudit.quantities.training_labels import TrainingLabels
from fglaudit.quantities.training_membership import TrainingMembership

QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Features(),
        Labels(),
        LabelDistributions(),
        Edges(),
        Membership(),
        L1Norms(),
        SquaredNorms(),
        GlobalNodeValues(),
        Centroids(),
        Linkage(),
        NeighboringClients(),
        LayerInputs(),
        LayerWords(),
        HeldRows(),
        TrainingLabels(),
        TrainingMembership(),
        Attributes(),
    )
}


def quantity(name: str) -> Quantity:
    """Return the quantity called ``name``."""
    if name not in QUANTITIES:
        raise unknown("quantity", name, QUANTITIES)
    return QUANTITIES[name]


__all__ = [
    "QUANTITIES",
    "Attempt",
    "Comparison",
    "InferredQuantity",
    "ObserverTruth",
    "Quantity",
    "Question",
    "Result",
    "Scores",
    "quantity",
]
