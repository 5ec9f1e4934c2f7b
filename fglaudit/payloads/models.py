"""Whole models, and what stands for a client as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fglaudit.payloads.base import Payload


@dataclass(frozen=True)
class ModelUpdate(Payload):
    """All weights of a model as one vector per message [P, D]; the layout is public (``PublicFacts.layout``).

    FedGT's clients send the difference between their new weights and those they received, its server sends weights.
    """

    vector: Float[Tensor, "messages parameters"]


@dataclass(frozen=True)
class GlobalNodes(Payload):
    """FedGT: the centroids that summarise a client's subgraph, and on the way back their personalised average.

    Attributes:
        values: [P, n_g, D].
    """

    values: Float[Tensor, "messages global_nodes dimensions"]


@dataclass(frozen=True)
class LabelDistributions(Payload):
    """FedGT's comparison of similarities: the share of every class among a client's training nodes.

    Attributes:
        values: [P, C]; rows of zeros from clients without training nodes.
    """

    values: Float[Tensor, "messages classes"]


@dataclass(frozen=True)
class FunctionalEmbeddings(Payload):
    """FED-PUB: what a client's model makes of a public random graph, averaged over its nodes.

    Attributes:
        values: [P, d].
    """

    values: Float[Tensor, "messages dimensions"]
