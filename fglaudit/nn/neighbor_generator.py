"""NeighGen's feature generator (Zhang et al. 2021, section 4.1): rows of neighbours that a client does not hold.

A node's embedding z, to which its client has added N(0, 1), gives ``slots`` rows: ``X = tanh(relu(z W + b) V + c)``.
The first n of them count, n being how many neighbours the node lacks. A client that holds other nodes says how the
generator must change to make rows like its own (the third term of the paper's equation (7)): the gradient of

    mean over rows that count and features of (x - u)^2,    u the nearest of the holder's rows,

with respect to the generator's weights. The gradient is written out, so that many holders are one product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.nn.weights import Layout, flatten, unflatten


@dataclass(frozen=True)
class FeatureGenerator:
    """The shape of a generator.

    Attributes:
        embedding: width of a node's embedding, d.
        hidden: units h.
        slots: rows per node, p.
        features: of a row, F.
    """

    embedding: int
    hidden: int
    slots: int
    features: int

    def layout(self) -> Layout:
        """Return the shapes of its weights, D numbers in all."""
        rows = self.slots * self.features
        return {
            "hidden.weight": (self.embedding, self.hidden),
            "hidden.bias": (self.hidden,),
            "rows.weight": (self.hidden, rows),
            "rows.bias": (rows,),
        }

    def units(self, vectors: Tensor, inputs: Tensor) -> Tensor:
        """Return the hidden units [J, m, h] of J generators [J, D] for embeddings with noise [J, m, d]."""
        weights = unflatten(vectors, self.layout())
        return torch.baddbmm(weights["hidden.bias"].unsqueeze(1), inputs, weights["hidden.weight"]).relu()

    def rows(self, vectors: Tensor, units: Tensor) -> Tensor:
        """Return the rows [J, m, p, F] that follow from ``units`` [J, m, h]."""
        weights = unflatten(vectors, self.layout())
        made = torch.baddbmm(weights["rows.bias"].unsqueeze(1), units, weights["rows.weight"]).tanh()
        return made.view(*units.shape[:2], self.slots, self.features)

    def counted(self, counts: Tensor) -> Tensor:
        """Return which rows count [J, m, p] where a node lacks ``counts`` [J, m] neighbours."""
        slot = torch.arange(self.slots, device=counts.device)
        return slot < counts.round().clamp(0, self.slots).unsqueeze(2)

    def share(self, counts: Tensor) -> Tensor:
        """Return the factor [J] of a squared difference in the loss: one over rows that count, times features."""
        return 1 / (self.counted(counts).sum((1, 2)).clamp(min=1) * self.features)

    def gradients(self, vectors: Tensor, inputs: Tensor, counts: Tensor, x: Tensor, present: Tensor) -> Tensor:
        """Return the gradients [J, D] that J holders compute.

        Args:
            vectors: the generator as each of them received it [J, D].
            inputs, counts: embeddings with noise [J, m, d], neighbours that each node lacks [J, m].
            x: the holders' own rows [J, n, F].
            present: which of them are rows and not padding [J, n].
        """
        weights = unflatten(vectors, self.layout())
        units = self.units(vectors, inputs)
        made = self.rows(vectors, units)
        counted = self.counted(counts).flatten(1)
        most = int(counted.sum(1).amax().item())  # no other rows need a nearest one: looking for it takes the longest
        row = counted.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
        place = row.unsqueeze(2).expand(-1, -1, self.features)
        shown = made.flatten(1, 2).gather(1, place)
        factor = (counted.gather(1, row) * 2 * self.share(counts).unsqueeze(1)).unsqueeze(2)
        slope = factor * (shown - nearest(shown, x, present)) * (1 - shown.square())
        slope = torch.zeros_like(made.flatten(1, 2)).scatter_(1, place, slope).view(*made.shape[:2], -1)
        back = (slope @ weights["rows.weight"].transpose(1, 2)) * (units > 0)
        return flatten(
            {
                "hidden.weight": inputs.transpose(1, 2) @ back,
                "hidden.bias": back.sum(1),
                "rows.weight": units.transpose(1, 2) @ slope,
                "rows.bias": slope.sum(1),
            }
        )


def nearest(rows: Tensor, x: Tensor, present: Tensor) -> Tensor:
    """Return for each of ``rows`` [J, r, F] the nearest one of ``x`` [J, n, F] where ``present`` [J, n]."""
    size = x.square().sum(2).masked_fill(~present, float("inf")).unsqueeze(1)
    chosen = torch.baddbmm(size, rows, x.transpose(1, 2), alpha=-2).argmin(2)
    return x.gather(1, chosen.unsqueeze(2).expand(-1, -1, x.shape[2]))


def generated_loss(made: Tensor, counts: Tensor, targets: Tensor, real: Tensor) -> Tensor:
    """Return the local loss [J]: mean over rows that count and features of the squared difference to the nearest of a
    node's own hidden neighbours.

    Args:
        made: [J, m, p, F].
        counts: hidden neighbours of each node [J, m].
        targets: their rows [J, m, t, F], where ``real`` [J, m, t].
    """
    products = made @ targets.transpose(2, 3)
    distances = made.square().sum(3, keepdim=True) + targets.square().sum(3).unsqueeze(2) - 2 * products
    best = distances.masked_fill(~real.unsqueeze(2), float("inf")).amin(3)
    used = torch.arange(made.shape[2], device=made.device) < counts.unsqueeze(2)
    total = torch.where(used, best, 0).sum((1, 2))
    return total / (used.sum((1, 2)).clamp(min=1) * made.shape[3])


def predicted_counts(scores: Tensor, slots: int) -> Tensor:
    """Return how many neighbours to add [...], from the degree predictor's outputs: rounded, from 0 to ``slots``."""
    return functional.relu(scores).round().clamp(max=slots)
