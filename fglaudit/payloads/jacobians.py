"""GFL-APPNP: hidden representations of nodes, and their Jacobians."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fglaudit.payloads.base import Payload


@dataclass(frozen=True)
class HiddenRepresentations(Payload):
    """GFL-APPNP: a node's encoder output, averaged over its samples; the sender is the node.

    Attributes:
        values: ``h_j`` [P, C].
    """

    values: Float[Tensor, "messages classes"]


@dataclass(frozen=True)
class Jacobians(Payload):
    """GFL-APPNP: the full Jacobian of the sender's hidden representation with respect to the encoder's weights.

    Attributes:
        values: ``dh_j / dW`` [P, C, W]; the layout of W is public (``PublicFacts.layout``).
    """

    values: Float[Tensor, "messages classes parameters"]


@dataclass(frozen=True)
class PropagatedRepresentations(Payload):
    """GFL-APPNP: what the server returns to client k of everyone else's hidden representations.

    Attributes:
        values: ``C_k = sum over j != k of A_kj h_j`` [P, C].
    """

    values: Float[Tensor, "messages classes"]


@dataclass(frozen=True)
class PropagatedJacobians(Payload):
    """GFL-APPNP: what the server returns to client k of everyone else's Jacobians.

    Attributes:
        values: ``dC_k = sum over j != k of A_kj dh_j / dW`` [P, C, W].
    """

    values: Float[Tensor, "messages classes parameters"]
