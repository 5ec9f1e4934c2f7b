"""A client's masks of a model's weights (FED-PUB, section 4.2): what it uses is ``W * M``, entry by entry.

Masks follow the weights in a client's vector, one for every matrix, and never leave it. The loss has ``sparsity |M|_1``
and ``proximal / 2 |W - W_received|^2`` beside the labels' part; in tests entries of M below ``sparsity`` count as 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.graph_transformer import Weights
from fglaudit.nn.weights import Layout

MASK = ".mask"


def with_masks(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Return ``layout`` with a mask for every matrix, in their order, at the end."""
    return {**layout, **{name + MASK: shape for name, shape in layout.items() if len(shape) == 2}}


@dataclass(frozen=True)
class PersonalMasks:
    """Satisfies :class:`fglaudit.federated.subgraph_training.Masking`.

    Attributes:
        shared: how many numbers of a vector are weights; masks follow.
    """

    shared: int
    sparsity: float
    proximal: float

    @staticmethod
    def of(layout: Layout, sparsity: float, proximal: float) -> PersonalMasks:
        """Return the masks beside weights of this ``layout``."""
        return PersonalMasks(sum(math.prod(shape) for shape in layout.values()), sparsity, proximal)

    def effective(self, weights: Weights, *, testing: bool) -> Weights:
        used: dict[str, Tensor] = {}
        for name, weight in weights.items():
            if name.endswith(MASK):
                continue
            mask = weights.get(name + MASK)
            if mask is not None and testing:
                mask = torch.where(mask.abs() < self.sparsity, 0, mask)
            used[name] = weight if mask is None else weight * mask
        return used

    def penalty(self, vectors: Tensor, received: Tensor) -> Tensor:
        moved = vectors[:, : self.shared] - received[:, : self.shared]
        masks = vectors[:, self.shared :]
        return self.sparsity * masks.abs().sum(1) + self.proximal / 2 * moved.square().sum(1)

    def first(self, model: Tensor, width: int) -> Tensor:
        """Return a first ``model`` [D] with masks of 1, ``width`` numbers in all."""
        return torch.cat([model, torch.ones(width - len(model), device=model.device)])
