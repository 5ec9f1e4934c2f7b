"""Classes from vectors of users of whom some labels are known: a ridge classifier, as log odds."""

from __future__ import annotations

import torch
from torch import Tensor

SHARPNESS = (0.0, 1.0, 2.0, 4.0)
"""Scales at which scores of the ridge classifier (targets 0 and 1) become log odds."""
_RIDGE = 1e-2


def label_scores(
    inputs: Tensor, nodes: Tensor, y: Tensor, classes: int, scales: tuple[float, ...]
) -> tuple[Tensor, float]:
    """Return log odds [N, C] from ridge regression of known labels, and the log likelihood of left-out labels.

    Args:
        inputs: [N, D].
        nodes, y: known labels [L].
        classes: number of classes C.
        scales: of the log odds; the one that predicts left-out labels best is used.
    """
    design = torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
    train = design[nodes.to(design.device)]
    gram = train.mT @ train
    gram.diagonal().add_(_RIDGE * len(train))
    targets = torch.nn.functional.one_hot(y, classes).to(train)
    solved = torch.linalg.solve(gram, train.mT)
    hat = (train * solved.mT).sum(1, keepdim=True)
    left_out = (train @ (solved @ targets) - hat * targets) / (1 - hat).clamp(min=1e-9)
    frequency = ((targets.sum(0) + 1) / (len(targets) + classes)).log()
    likelihood = [float(((scale * left_out + frequency).log_softmax(1) * targets).sum().item()) for scale in scales]
    best = max(range(len(scales)), key=likelihood.__getitem__)
    return scales[best] * (design @ (solved @ targets)), likelihood[best]
