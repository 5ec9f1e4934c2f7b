"""Classes of users whose labels the observer does not know, from what a classifier and their neighbours say."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.attacks.latents.latent_rounds import unknown_users
from fglaudit.interfaces import Inference
from fglaudit.view import View


def label_guess(view: View, found: list[tuple[Tensor, float]], labelled: Tensor) -> Inference:
    """Return class probabilities of all users but ``labelled``.

    Label propagation, which needs no message and is the control, is added in log odds.

    Args:
        found: fitted log odds [N, C] and how well each fit predicts left-out labels; the best one is used.
        labelled: users [L] whose labels are known.
    """
    scores = max(found, key=lambda fitted: fitted[1])[0]
    users = unknown_users(view)
    users = users[~torch.isin(users, labelled)]
    total = scores.cpu()[users] + propagate_labels(view, users).clamp(min=1e-6).log()
    return Inference("labels", users, total.softmax(1))
