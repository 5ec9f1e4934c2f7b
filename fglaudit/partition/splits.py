"""Train, validation and test masks per (client, node)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.graph import Graph

Masks = tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]


def split_masks(
    graph: Graph, clients: Sequence[Tensor], dataset: DatasetSpec, rng: torch.Generator, pooled: bool
) -> Masks:
    """Return (train, val, test), each with one mask [n_k] per client.

    Public masks are restricted to each client's nodes. With ``split: random`` every client draws from its own labelled
    nodes, so two clients that share a node may use it differently: one may train on a label that the other is tested
    on. With ``split: random-shared`` masks are drawn once over all nodes. ``pooled`` does so too: a client of one node
    cannot be split by fractions.
    """
    if dataset.split in ("random", "random-shared"):
        if pooled or dataset.split == "random-shared":
            everyone = random_split(graph.y, dataset, rng)
            return _cut(everyone, clients)
        drawn = [random_split(graph.y[nodes], dataset, rng) for nodes in clients]
        train, val, test = zip(*drawn, strict=True)
        return train, val, test
    public = (graph.train, graph.val, graph.test)
    if any(mask is None for mask in public):
        raise FglauditError(
            f"split: public needs a data set with public masks; {graph.name} has none; use split: random "
            f"(train {dataset.train:g}, val {dataset.val:g}, test {dataset.test:g})"
        )
    return _cut([mask for mask in public if mask is not None], clients)


def random_split(y: Tensor, dataset: DatasetSpec, rng: torch.Generator) -> list[Tensor]:
    """Return train, val, test masks [n] over ``y`` [n]: fractions of the labelled nodes, rounded cumulatively.

    If every sample has a label, ``y`` [n, S], each node's samples are split in this way, and masks are [n, S].
    """
    if y.dim() == 2:
        return _split_samples(y, dataset, rng)
    label = y
    labelled = (label >= 0).nonzero().squeeze(1)
    shuffled = labelled[torch.randperm(len(labelled), generator=rng)]
    shares = (dataset.train, dataset.train + dataset.val, dataset.train + dataset.val + dataset.test)
    ends = [0, *(min(round(share * len(labelled)), len(labelled)) for share in shares)]
    masks = []
    for start, stop in pairwise(ends):
        mask = torch.zeros(len(label), dtype=torch.bool)
        mask[shuffled[start:stop]] = True
        masks.append(mask)
    return masks


def _split_samples(y: Tensor, dataset: DatasetSpec, rng: torch.Generator) -> list[Tensor]:
    labelled = y >= 0
    order = torch.where(labelled, torch.rand(y.shape, generator=rng), 2.0).argsort(1).argsort(1)
    count = labelled.sum(1, keepdim=True)
    shares = (0.0, dataset.train, dataset.train + dataset.val, dataset.train + dataset.val + dataset.test)
    ends = [(share * count).round().long().minimum(count) for share in shares]
    return [(order >= start) & (order < stop) & labelled for start, stop in pairwise(ends)]


def _cut(masks: Sequence[Tensor], clients: Sequence[Tensor]) -> Masks:
    train, val, test = (tuple(mask[nodes] for nodes in clients) for mask in masks)
    return train, val, test
