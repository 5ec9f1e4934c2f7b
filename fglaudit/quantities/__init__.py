"""What an attack can be after: one quantity per file, with its truth, its control and its score."""

from __future__ import annotations

from fglaudit.errors import unknown
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
from fglaudit.quantities.clients.centroids import Centroids
from fglaudit.quantities.clients.global_nodes import GlobalNodeValues
from fglaudit.quantities.clients.label_distributions import LabelDistributions
from fglaudit.quantities.clients.linkage import Linkage
from fglaudit.quantities.clients.training_labels import TrainingLabels
from fglaudit.quantities.nodes.attributes import Attributes
from fglaudit.quantities.nodes.edges import Edges
from fglaudit.quantities.nodes.labels import Labels
from fglaudit.quantities.nodes.neighboring_clients import NeighboringClients
from fglaudit.quantities.nodes.node_owner import NodeOwner
from fglaudit.quantities.nodes.norms import L1Norms, SquaredNorms
from fglaudit.quantities.nodes.training_membership import TrainingMembership
from fglaudit.quantities.rows.features import Features
from fglaudit.quantities.unplaced.held_rows import HeldRows
from fglaudit.quantities.unplaced.layer_inputs import LayerInputs
from fglaudit.quantities.unplaced.layer_words import LayerWords

QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Features(),
        Labels(),
        LabelDistributions(),
        Edges(),
        NodeOwner(),
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
