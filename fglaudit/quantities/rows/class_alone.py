"""Feature rows from a class alone: the most that a report of a class can say of a row.

The guess is told, beside what the observer knows before any message, the class that every node predicts: before a
response made it random, and of nodes whose report the observer never sees too. Of rows it has those of the observer
alone, own and auxiliary ones: means by *predicted* class, and those of a node's known neighbours, as the guess without
any message has (:mod:`fglaudit.adversary.priors.class_prior`). What an attack on reports has above it is not the class.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.priors.class_prior import rows_of_classes
from fglaudit.interfaces import Reconstruction
from fglaudit.view import View


def class_alone(view: View, predicted: Tensor, nodes: Tensor) -> Reconstruction | None:
    """Return a guess of the rows of ``nodes`` [R]; None where no class is told or no row known.

    ``view.messages`` is not read.

    Args:
        predicted: the class that each node of the graph predicts [N]; empty: not told.
    """
    known = view.known_rows()
    if len(predicted) == 0 or len(known.nodes) == 0:
        return None
    told = one_hot(predicted, view.public.num_classes).double()
    rows = rows_of_classes(view, known, told[known.nodes], nodes, told[nodes])
    return Reconstruction(rows, nodes, torch.zeros(len(nodes)))
