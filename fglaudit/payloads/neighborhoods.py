"""FedGAT's masked neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fglaudit.payloads.base import Payload
from fglaudit.shapes import NodeIds


@dataclass(frozen=True)
class MaskedMatrices(Payload):
    """FedGAT's matrices of one node i per message; all nodes of a batch have b neighbours, node i itself included.

    With orthonormal ``u1_j, u2_j`` in R^2b, a random r > 0 and
    ``U_j = 1/2 (u1_j u1_j' + u2_j u2_j' + r u1_j u2_j' + u2_j u1_j' / r)`` for every j in the neighbourhood of i:

    Attributes:
        node: i [P].
        m1: ``M1_i(s) = h_i(s) sum_j U_j`` [P, F, 2b, 2b].
        m2: ``M2_i(s) = sum_j h_j(s) U_j`` [P, F, 2b, 2b].
        k1: ``K1_i = sqrt(2) sum_j u1_j`` [P, 2b].
        k2: ``K2_i = sqrt(2) sum_j u1_j h_j'`` [P, 2b, F].
    """

    node: NodeIds
    m1: Float[Tensor, "messages features width width"]
    m2: Float[Tensor, "messages features width width"]
    k1: Float[Tensor, "messages width"]
    k2: Float[Tensor, "messages width features"]


@dataclass(frozen=True)
class MaskedVectors(Payload):
    """The vector variant of :class:`MaskedMatrices`: binary ``u_j`` in R^2b with disjoint supports of two entries each.

    Attributes:
        node: i [P].
        m1: ``(mask1 + h_i sum_j u_j')'`` [P, 2b, F].
        m2: ``(mask2 + sum_j h_j u_j')'`` [P, 2b, F].
        k1: ``mask3 + sum_j u_j h_j'`` [P, 2b, F], with ``u_j' mask3 = 0``.
        k2: ``mask4`` [P, 2b, 2b], with ``mask1 mask4 = mask2 mask4 = 0`` and ``u_j' mask4 = u_j'``.
        k3: ``mask5 + sum_j u_j`` [P, 2b], with ``u_j' mask5 = 0``.
    """

    node: NodeIds
    m1: Float[Tensor, "messages width features"]
    m2: Float[Tensor, "messages width features"]
    k1: Float[Tensor, "messages width features"]
    k2: Float[Tensor, "messages width width"]
    k3: Float[Tensor, "messages width"]
