"""The feature rows that clients hold: :mod:`fglaudit.quantities.unplaced.unplaced_rows`.

Asked about are all rows with an entry of the clients that are not observing: an attack need not reach most of them.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from fglaudit.quantities.base import ObserverTruth, Question
from fglaudit.quantities.unplaced.unplaced_rows import UnplacedRows


class HeldRows(UnplacedRows):
    """See the module docstring."""

    name: ClassVar[str] = "held-rows"

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph = truth.graph
        if graph.x.dim() != 2:
            return "a node has several feature rows, one per sample"
        known = torch.zeros(graph.num_nodes, dtype=torch.bool)
        known[truth.auxiliary.nodes] = True
        subjects, rows = [], []
        for k in truth.others().tolist():  # few, and of different size
            x = graph.x[graph.clients[k][~known[graph.clients[k]]]]
            x = x[x.any(1)]
            subjects.append(torch.stack([torch.full((len(x),), k), torch.arange(len(x))], 1))
            rows.append(x)
        if not sum(len(x) for x in rows):
            return "no other client holds a row with an entry"
        asked = torch.cat(subjects)
        return Question(asked, torch.cat(rows), truth.clusters_of(asked[:, 0]))
