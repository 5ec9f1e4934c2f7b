"""The clients that a graph itself names: who really holds which node."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.graph import Graph


def given(graph: Graph) -> list[Tensor]:
    """Return ascending node ids per client. Nothing is drawn: all seeds have the same clients.

    ``graph.clients`` must be there, see :meth:`fglaudit.partition.PartitionSpec.check`.
    """
    assert graph.clients is not None
    order = torch.argsort(graph.clients, stable=True)
    return list(torch.tensor_split(order, torch.bincount(graph.clients).cumsum(0)[:-1]))
