"""METIS (Karypis and Kumar, 1998): equal parts with few edges between them (FedGT, section 5.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.graph import Graph
from fglaudit.partition.assign import lists_of, numpy_seed, refuse_empty


def metis(graph: Graph, clients: int, rng: torch.Generator) -> list[Tensor]:
    """Return node ids per client; every node goes to exactly one.

    Raises:
        FglauditError: pymetis is not installed, or METIS leaves a part empty (graphs with few nodes per client).
    """
    try:
        import pymetis
    except ImportError as error:
        raise FglauditError(
            "this partition needs METIS; pymetis is not installed; run: pip install 'fglaudit[metis]', or use scheme:"
            " louvain"
        ) from error
    seed = numpy_seed(rng)
    if clients == 1:
        return [torch.arange(graph.num_nodes)]
    row, col = graph.edge_index
    starts = torch.cat([row.new_zeros(1), torch.bincount(row, minlength=graph.num_nodes).cumsum(0)])
    adjacency = pymetis.CSRAdjacency(starts.int().numpy(), col.int().numpy())
    _, part = pymetis.part_graph(clients, adjacency, options=pymetis.Options(seed=seed))
    parts = lists_of(torch.as_tensor(part, dtype=torch.long), clients)
    refuse_empty(parts, "metis", f"{clients} clients on {graph.num_nodes} nodes", "lower clients")
    return parts
