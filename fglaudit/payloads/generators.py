"""FedSage+: generators of missing neighbours, what they read, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from fglaudit.payloads.base import Payload
from fglaudit.shapes import RowValues


@dataclass(frozen=True)
class NeighborGenerators(Payload):
    """FedSage+: the weights of the sender's generator of missing neighbours, for another client to say how to change
    them.

    Attributes:
        vector: [P, D], laid out as :meth:`fglaudit.nn.neighbor_generator.FeatureGenerator.layout` says.
    """

    vector: Float[Tensor, "messages parameters"]


@dataclass(frozen=True)
class GeneratorInputs(Payload):
    """FedSage+: what the sender's generator is to be applied to, one row per node; which nodes is not said.

    Attributes:
        values: embeddings with noise [rows, d].
        counts: how many neighbours each node lacks [rows].
    """

    ragged: ClassVar[bool] = True
    values: RowValues
    counts: Float[Tensor, " rows"]


@dataclass(frozen=True)
class GeneratorGradients(Payload):
    """FedSage+: how the receiver's generator must change to make rows like the sender's.

    Attributes:
        vector: gradient with respect to the weights of :class:`NeighborGenerators` [P, D].
    """

    vector: Float[Tensor, "messages parameters"]
