"""Feature rows from a class alone: the most that a report of a class can say of a row.

The guess is told, beside what the observer knows before any message, the class that every node predicts: before a
response made it random, and of nodes whose report the observer never sees too. Of rows it has those of the observer
alone, own and auxiliary ones: means by *predicted* class. Binary rows get the bits with the best expected F1 under the
mean of their class, real-valued ones that mean. What an attack on reports has above it is not the class.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.class_means import class_means
from fglaudit.adversary.expected_f1 import best_f1_bits
from fglaudit.adversary.feature_prior import feature_prior
from fglaudit.graph import FeatureKind
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
    real = view.public.features is FeatureKind.REAL
    x = known.x.double() if real else (known.x != 0).double()
    rows = class_means(x, one_hot(predicted[known.nodes], view.public.num_classes).double())
    if not real:
        rows = best_f1_bits(rows) * feature_prior(view, nodes[:1]).level
    return Reconstruction(rows[predicted[nodes]].float(), nodes, torch.zeros(len(nodes)))
