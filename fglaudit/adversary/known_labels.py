"""Labels that an observer knows, whichever way it came by them."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.view import KnownLabels, View


def known_labels(view: View) -> tuple[Tensor, Tensor]:
    """Return the nodes [K] whose labels the observer knows, from rows of its own or from the protocol, and their
    labels [K]. A node may stand there twice."""
    known = view.known_rows()
    nodes, y = torch.cat([known.nodes, view.labels.nodes]), torch.cat([known.y, view.labels.y])
    return nodes[y >= 0], y[y >= 0]


def with_labels(view: View, nodes: Tensor, y: Tensor) -> View:
    """Return ``view`` with the labels ``y`` [n] of ``nodes`` [n] known too, but for those that were known before."""
    new = ~torch.isin(nodes, known_labels(view)[0])
    labels = KnownLabels(torch.cat([view.labels.nodes, nodes[new]]), torch.cat([view.labels.y, y[new]]))
    return dataclasses.replace(view, labels=labels)


def known_shares(view: View) -> Tensor:
    """Return the shares [C] of the classes among labels of known rows, one added to each."""
    y = view.known_rows().y
    counts = torch.bincount(y[y >= 0].flatten(), minlength=view.public.num_classes).double() + 1
    return counts / counts.sum()


def shares_of_others(view: View) -> tuple[Tensor, Tensor]:
    """Return the clients [K] that are not the observer's, and what it says of each without a message, as a guess does:
    the shares [K, C] among known labels from everywhere, else among its own, else even ones. So read messages of noise,
    where no mean is one of which one client is left."""
    classes = view.public.num_classes
    drawn = torch.cat([view.auxiliary.y.flatten(), view.labels.y])
    known = drawn if bool((drawn >= 0).any()) else view.known_rows().y.flatten()
    counts = torch.bincount(known[known >= 0], minlength=classes).double()
    shares = counts / counts.sum() if counts.sum() > 0 else torch.full_like(counts, 1 / classes)
    others = torch.tensor([k for k in range(view.public.num_clients) if k not in view.observer.clients])
    return others, shares.expand(len(others), -1)
