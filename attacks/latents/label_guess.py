"""Classes of users whose labels the observer does not know, from vectors of all users and from known edges.

A ridge classifier learns the classes from the vectors of users with known labels. Its scores become log odds, to which
those of label propagation from the same labels are added, which needs no message and is the control. How likely known
labels are that were left out of both says how much the vectors of a kind are worth at each scale of the scores: the
answer is the mean over kinds and scales, weighted by that likelihood. So vectors that repeat what edges say already
count little, and those that say nothing not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_labels import known_labels
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.predicted_labels import only_labels
from fglaudit.attacks.latents.latent_rounds import unknown_users
from fglaudit.graph import first_of_each
from fglaudit.interfaces import Inference
from fglaudit.view import View

_SCALES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Scales at which scores of the ridge classifier (targets 0 and 1) become log odds."""
_RIDGE = 1e-2
_PARTS = 10
"""Parts of the known labels, each left out in turn."""


def label_guess(view: View, inputs: Sequence[Tensor]) -> Inference:
    """Return class probabilities of all users whose labels are not known.

    Args:
        inputs: vectors of all users [N, D], of one kind each.
    """
    nodes, y = known_labels(view)
    nodes, _, first = first_of_each(nodes)
    y, classes = y[first], view.public.num_classes
    asked = _asked(view, nodes)
    part = asked.cumsum(0) % min(_PARTS, int(asked.sum()))
    scales = torch.tensor(_SCALES, dtype=torch.double)
    likely = torch.zeros(len(inputs), len(scales), dtype=torch.double)
    for number in range(int(part.max()) + 1):
        out = asked & (part == number)
        rest, truth = (nodes[~out], y[~out]), y[out]
        near = propagate_labels(only_labels(view, *rest), nodes[out]).log()
        for kind, vectors in enumerate(inputs):
            odds = near + scales.view(-1, 1, 1) * _scores(vectors, *rest, classes)[nodes[out]]
            likely[kind] += odds.log_softmax(2)[:, torch.arange(len(truth)), truth].sum(1)
    users = unknown_users(view)
    users = users[~torch.isin(users, nodes)]
    near = propagate_labels(view, users).log()
    found = torch.zeros_like(near)
    for vectors, weight in zip(inputs, likely.flatten().softmax(0).view_as(likely), strict=True):
        odds = near + scales.view(-1, 1, 1) * _scores(vectors, nodes, y, classes)[users]
        found += torch.einsum("s,snc->nc", weight, odds.softmax(2))
    return Inference("labels", users, found)


def _asked(view: View, nodes: Tensor) -> Tensor:
    """Return which of ``nodes`` [L] are asked about [L]: those that nobody is known to train on, since vectors of those
    who train follow their labels more than others' do; all where that leaves fewer than two."""
    trained = torch.cat([view.labels.nodes, *(client.nodes[client.train] for client in view.own)])
    asked = ~torch.isin(nodes, trained)
    return asked if int(asked.sum()) > 1 else torch.ones_like(asked)


def _scores(vectors: Tensor, nodes: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return scores [N, C] of a ridge classifier of ``vectors`` [N, D], learned from the labels ``y`` [L] of ``nodes``,
    on the CPU."""
    design = torch.cat([vectors, torch.ones_like(vectors[:, :1])], 1)
    known = design[nodes.to(design.device)]
    gram = known.mT @ known
    gram.diagonal().add_(_RIDGE * len(known))
    solved: Tensor = torch.linalg.solve(gram, known.mT @ one_hot(y, classes).to(known))
    return (design @ solved).cpu()
