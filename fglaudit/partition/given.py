"""The clients that a graph itself names: who really holds which node."""

from __future__ import annotations

from torch import Tensor

from fglaudit.graph import Graph
from fglaudit.partition.assign import lists_of


def given(graph: Graph) -> list[Tensor]:
    """Return ascending node ids per client. Nothing is drawn: all seeds have the same clients.

    ``graph.clients`` must be there, see :meth:`fglaudit.partition.PartitionSpec.check`.
    """
    assert graph.clients is not None
    return lists_of(graph.clients, int(graph.clients.max().item()) + 1)
