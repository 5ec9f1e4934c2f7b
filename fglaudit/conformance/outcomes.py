"""Does what a training ends with hold more of a client's data than messages brought? Accuracies stand beside leaks in
every report, and say nothing where the model that reached them was trained on rows that nobody was sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Trained

_RELATIVE, _ABSOLUTE = 1e-5, 1e-6
"""By how much weights may differ that are computed beside others, over all steps."""


@dataclass(frozen=True)
class Difference:
    """What is another one in a second training, in words, and whether that is an accuracy: few test places are
    classified otherwise after a little change."""

    words: str
    of_accuracies: bool = False


def changed_elsewhere(
    before: Trained, after: Trained, graph: FederatedGraph, clients: Collection[int]
) -> Difference | None:
    """Return what is another one in ``after``, where data of ``clients`` differ and everybody receives the same
    messages, although it is not theirs; None if nothing is.

    A weight that differs by client has a leading axis K, of which the rows of ``clients`` are theirs. Which round
    counts may follow from anybody's validation nodes, and weights are then another round's.
    """
    others = torch.ones(graph.num_clients, dtype=torch.bool)
    others[list(clients)] = False
    for name, value in before.weights.items() if before.round == after.round else ():
        if name not in after.weights or after.weights[name].shape != value.shape:
            return Difference(f"the shape of weight {name!r} that training ends with")
        both = value, after.weights[name]
        if _by_client(before, name, graph.num_clients):
            both = value[others], after.weights[name][others]
        if not _close(*both):
            return Difference(f"weight {name!r} that training ends with")
    if before.accuracy.shape != after.accuracy.shape:
        return Difference("accuracies, of which there are more or fewer", of_accuracies=True)
    columns = (one.accuracy[:, others].nan_to_num(-1.0) for one in (before, after))
    if not torch.equal(*columns):
        return Difference("accuracies of other clients", of_accuracies=True)
    if _hits_elsewhere(before, after, graph, others):
        return Difference("accuracies of the whole test set, by more than the test nodes there", of_accuracies=True)
    return None


def _by_client(trained: Trained, name: str, clients: int) -> bool:
    value = trained.weights[name]
    if value.dim() == 0 or value.shape[0] != clients:
        return False
    return name not in trained.layout or value.dim() > len(trained.layout[name])


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.double(), other.double(), _RELATIVE, _ABSOLUTE, equal_nan=True)


def _hits_elsewhere(before: Trained, after: Trained, graph: FederatedGraph, others: Tensor) -> bool:
    """Whether the whole test set's accuracy moved by more than what the other clients hold of it leaves."""
    places = torch.tensor([float(mask.sum()) for mask in graph.test])
    total = places.sum()
    if before.accuracy_global.shape != after.accuracy_global.shape or not total:
        return bool(total)
    moved = (before.accuracy_global.double() - after.accuracy_global.double()).abs().nan_to_num().max()
    return bool(moved > places[~others].sum() / total + 1e-6)
