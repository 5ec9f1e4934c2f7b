"""Which clients hold neighbours of a node: subjects are (client, node) [S, 2], estimates scores [S] (higher: likelier).

Asked about are all pairs of a client that is not observing and a node that neither this client nor an observing one
holds. The metric is the area under the ROC curve. A guess says the same of every pair.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from fglaudit.quantities.base import ObserverTruth, Question
from fglaudit.quantities.ranking import RankedQuantity


class NeighboringClients(RankedQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "neighboring-clients"
    asks_last: ClassVar[bool] = True

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph = truth.graph
        row, column = graph.edge_index
        held, near = (torch.zeros(graph.num_clients, graph.num_nodes, dtype=torch.bool) for _ in range(2))
        for k, nodes in enumerate(graph.clients):
            held[k, nodes] = True
            near[k, row[held[k, column]]] = True
        asked = ~held & held.any(0) & truth.foreign()
        asked[list(truth.observer.clients)] = False
        if not bool((near & asked).any()) or not bool((~near & asked).any()):
            return "every node of others has a neighbour at every other client, or none has"
        subjects = asked.nonzero()
        return Question(subjects, near[asked].double(), truth.clusters_of(subjects[:, 0]))
