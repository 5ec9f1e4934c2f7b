"""Sensitivity of all of FedGAT's masked messages together to one node's feature row; noise is calibrated to it.

Masks do not depend on features, so two data sets that differ in one row are compared under the same masks, and the
bound holds for all masks. If the row of v changes by a vector of norm 1 then, with b = |N_i|, N_i the closed
neighbourhood of i:

* matrix variant, a message about i with v in N_i: M2 changes by ``delta(s) U_v``, squared norm
  ``||U_v||^2 = ((r + 1/r) / 2)^2``, and K2 by ``sqrt(2) u1_v delta'``, squared norm 2. If i = v, M1 also changes, by
  ``delta(s) sum_j U_j``: the U_j are orthogonal, so this is ``b ||U_v||^2``. K1 does not depend on features. With r in
  [1/2, 2], ``||U_v||^2 <= 25/16``.
* vector variant: M2 and K1 change by ``delta u_v'``, squared norm 2 each since u_v has two ones; if i = v, M1 by
  ``delta sum_j u_j'``, squared norm 2b. K2 and K3 do not depend on features.

So the squared change is ``member x sum over i in N_v of R_i + own x b_v R_v``, where R_i is the number of receivers of
i's message (each gets independent noise, and receivers may pool their messages), ``member`` is 3.5625 or 4 and ``own``
1.5625 or 2. With one receiver each it is at most 5.125 or 6 times (largest degree + 1).
"""

from __future__ import annotations

import math

from torch import Tensor

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.payloads import MaskedMatrices
from fglaudit.protocols.fedgat.masking import LARGEST_R, Masked


def dependent_fields(variant: type[Masked]) -> tuple[str, ...]:
    """Return the fields that depend on features; the others hold masks alone."""
    return ("m1", "m2", "k2") if variant is MaskedMatrices else ("m1", "m2", "k1")


def squared_changes(variant: type[Masked]) -> tuple[float, float]:
    """Return (member, own): the squared change of a message per unit change of a row.

    ``member`` holds for every row in the neighbourhood; ``own`` is added per neighbour if the row is the node's own.
    """
    if variant is MaskedMatrices:
        unit = ((LARGEST_R + 1 / LARGEST_R) / 2) ** 2
        return unit + 2, unit
    return 4.0, 2.0


def joint_gain(edges: KeptEdges, receivers: Tensor, variant: type[Masked]) -> float:
    """Return the largest norm of the change of all messages when one row changes by norm 1.

    Args:
        edges: with self-loops, on the CPU.
        receivers: how many clients get the message of each node [N].
    """
    member, own = squared_changes(variant)
    center = edges.receivers().long()
    spread = receivers.new_zeros(len(receivers)).index_add_(0, edges.source.long(), receivers[center])
    squares = member * spread + own * edges.start.diff() * receivers
    return math.sqrt(float(squares.max().item()))
