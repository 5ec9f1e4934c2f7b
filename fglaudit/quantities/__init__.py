"""What an attack can be after: one quantity per file, with its truth, its control and its score.

Names are imported when asked for: which quantities there are needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from fglaudit.errors import unknown
from fglaudit.lazy_imports import lazy_imports

if TYPE_CHECKING:
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

QUANTITIES: Mapping[str, str] = {
    "features": "fglaudit.quantities.rows.features:Features",
    "labels": "fglaudit.quantities.nodes.labels:Labels",
    "label-distributions": "fglaudit.quantities.clients.label_distributions:LabelDistributions",
    "edges": "fglaudit.quantities.nodes.edges:Edges",
    "node-owner": "fglaudit.quantities.nodes.node_owner:NodeOwner",
    "l1-norms": "fglaudit.quantities.nodes.norms:L1Norms",
    "squared-norms": "fglaudit.quantities.nodes.norms:SquaredNorms",
    "global-nodes": "fglaudit.quantities.clients.global_nodes:GlobalNodeValues",
    "centroids": "fglaudit.quantities.clients.centroids:Centroids",
    "linkage": "fglaudit.quantities.clients.linkage:Linkage",
    "client-similarity": "fglaudit.quantities.clients.client_similarity:ClientSimilarity",
    "neighboring-clients": "fglaudit.quantities.nodes.neighboring_clients:NeighboringClients",
    "layer-inputs": "fglaudit.quantities.unplaced.layer_inputs:LayerInputs",
    "layer-words": "fglaudit.quantities.unplaced.layer_words:LayerWords",
    "held-rows": "fglaudit.quantities.unplaced.held_rows:HeldRows",
    "training-labels": "fglaudit.quantities.clients.training_labels:TrainingLabels",
    "training-membership": "fglaudit.quantities.nodes.training_membership:TrainingMembership",
    "attributes": "fglaudit.quantities.nodes.attributes:Attributes",
}
"""``module:Class`` of every quantity, by the key that policies and ``findings.csv`` have."""


@cache
def quantity(name: str) -> Quantity:
    """Return the quantity called ``name``."""
    if name not in QUANTITIES:
        raise unknown("quantity", name, QUANTITIES, "fglaudit list quantities")
    module, _, cls = QUANTITIES[name].partition(":")
    found: Quantity = getattr(import_module(module), cls)()
    return found


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

_BASE = dict.fromkeys(set(__all__) - {"QUANTITIES", "quantity"}, "fglaudit.quantities.base")
__getattr__, __dir__ = lazy_imports(__name__, _BASE)
