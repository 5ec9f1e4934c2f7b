"""Training that ended no better than naming the largest class: a result of such a run says nothing of the method."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.finding import UNDEFENDED
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.interfaces.outcomes import Trained
from fglaudit.partition.facts import tested_labels

DEVIATIONS = 2.0
"""Of the share of right answers that a constant guess has on so many test nodes, drawn anew."""
HARDLY = 0.025
"""Share of a class's test nodes that are right, up to which it is hardly ever named."""
FEWEST = 20
"""Test nodes of a class below which it says nothing."""
MISSING = 1 / 3
"""Share of the classes that are hardly ever named from which there is a note."""


def collapsed(
    protocol: FederatedProtocol, trained: Trained, graph: FederatedGraph, defense: str = UNDEFENDED
) -> tuple[str, ...]:
    """Return a note where the accuracy over the whole test set is within chance of the share of its largest class, or
    below, or where a third of the classes is hardly ever named right; nothing where there are no test nodes, or nodes
    of one class alone.

    The note has no figures of the run, so that equal ones of many cells are counted as one; the accuracy is a column.

    Args:
        defense: the name of what was done to messages, which may be the cause.
    """
    labels = tested_labels(graph)
    accuracy = trained.whole_test_set
    if not len(labels) or math.isnan(accuracy):
        return ()
    largest = float(torch.bincount(labels).max().item()) / len(labels)
    if largest == 1:
        return ()
    if accuracy <= largest + DEVIATIONS * math.sqrt(largest * (1 - largest) / len(labels)):
        what = "its accuracy is within chance of naming the largest class for every node (few test nodes tell little)"
    elif _unnamed(trained, labels) >= MISSING:
        what = "a third of the classes or more are hardly ever named right"
    else:
        return ()
    name = type(protocol).name
    if defense == UNDEFENDED:
        return (f"{name}: training collapsed or is too short: {what}; {_remedy(protocol)}",)
    return (
        f"{name} with {defense}: training collapsed: {what}; where {name} trains without it, {defense} is the cause:"
        f" make it weaker; else {_remedy(protocol)}",
    )


def balanced_accuracy(trained: Trained, graph: FederatedGraph) -> float | None:
    """Return the mean over the classes that are tested of the share of their test nodes that are named right; None
    where the protocol does not say which are."""
    sizes, rates = _by_class(trained, tested_labels(graph))
    return float(rates[sizes > 0].mean().item()) if bool((sizes > 0).any()) else None


def _unnamed(trained: Trained, labels: Tensor) -> float:
    """Return the share of the classes that are hardly ever named right, of those with enough test nodes."""
    sizes, rates = _by_class(trained, labels)
    large = sizes >= FEWEST
    return float((rates[large] <= HARDLY).double().mean().item()) if bool(large.any()) else 0.0


def _by_class(trained: Trained, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many test nodes each class has and the share of them that is named right; no class where the protocol
    does not say, or tests places without a label too: whose answers are whose is then not known."""
    if trained.right is None or len(trained.right) != len(labels):
        return torch.zeros(0), torch.zeros(0)
    sizes = torch.bincount(labels)
    return sizes, torch.bincount(labels, trained.right.cpu().double(), minlength=len(sizes)) / sizes.clamp(min=1)


def _remedy(protocol: FederatedProtocol) -> str:
    """Return what to change; Adam is what helped FedGCN on dense and on heterophilic graphs (docs/use.md)."""
    if getattr(protocol, "optimizer", None) == "sgd":
        return "set optimizer: adam and learning_rate: 0.01 first, then try more rounds"
    rate = getattr(protocol, "learning_rate", None)
    now = "" if rate is None else f" than {rate:g}"
    return f"try more rounds, another learning_rate{now}, or features: row-normalised or standardised of the data set"
