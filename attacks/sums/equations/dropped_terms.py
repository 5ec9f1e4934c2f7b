"""Which terms are left of sums where nodes with few neighbours at other clients receive nothing from these."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.public_rules import absent_clients, fewest_neighbors
from fglaudit.attacks.sums.recorded_sums import RecordedSums, sees_parts, shared
from fglaudit.payloads import NeighborSums
from fglaudit.view import View


def left_terms(
    view: View, sums: RecordedSums, owner: Tensor, about: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Return which terms [E] are certainly in their sum, and which [E] may be; the others certainly are not.

    Who uploads shows it: a sum made of parts of several clients has all its terms, one of a single client's has those
    that are this client's. Without uploads it follows from the owners of all of a node's neighbours, and where these
    are not known, only the node's own term is certain.

    Args:
        owner: client of each node [N], -1 where unknown.
        about: the node of each sum [R].
        rows, columns: sum and node of each term [E].
    """
    count, own_term = len(about), columns == about[rows]
    unowned = (owner[columns] < 0) & ~own_term
    foreign = (owner[columns] != owner[about][rows]) & ~own_term
    lone = torch.bincount(rows[foreign], minlength=count) < fewest_neighbors(view)
    known = own_nodes(view)[about]
    several = torch.zeros_like(known)
    if view.topology is not None:
        several = shared(view, sums)[about]
        seen = sees_parts(view) and not len(absent_clients(view, NeighborSums))
        known = known | seen | (torch.bincount(rows[owner[columns] < 0], minlength=count) == 0)
        if seen:
            lone = ~several
    inside = ~(foreign & lone[rows])
    certain = several[rows] | torch.where(known[rows], inside & ~(unowned & lone[rows]), own_term)
    return certain, ~certain & torch.where(known[rows], unowned, True)
