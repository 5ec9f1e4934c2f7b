"""An example graph whose training nodes are drawn: a fixed pattern of node ids would give them away."""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.graph import FederatedGraph
from fglaudit.rng import derive
from fglaudit.testing import example_graph


def drawn_training(nodes: int, features: int, share: float = 1 / 3) -> FederatedGraph:
    """Return it with each node in training by chance ``share``; all others are for testing."""
    graph = example_graph(nodes=nodes, features=features)
    chance = derive(0, "who trains")
    train = tuple(torch.rand(len(ids), generator=chance) < share for ids in graph.clients)
    none = tuple(torch.zeros_like(mask) for mask in train)
    return dataclasses.replace(graph, train=train, val=none, test=tuple(~mask for mask in train))


def learned_by_heart(nodes: int, features: int, share: float = 1 / 3) -> FederatedGraph:
    """Return the same with rows and labels that say nothing of each other, so that a label can only be memorised."""
    graph, draw = drawn_training(nodes, features, share), derive(0, "by heart")
    y = torch.randint(graph.num_classes, (nodes,), generator=draw)
    return dataclasses.replace(graph, x=(torch.rand(graph.x.shape, generator=draw) < 0.1).float(), y=y)
