"""Label skew by a Dirichlet distribution (Hsu, Qi and Brown, 2019), as FedGCN uses it (section 5).

Every class is divided among the clients in proportions drawn from Dirichlet(beta, ..., beta): small beta gives clients
with few classes, large beta gives every client the same mix. Edges play no part, so most of them cross clients.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fglaudit.graph import Graph
from fglaudit.partition.assign import lists_of, numpy_seed, refuse_empty


def dirichlet(graph: Graph, clients: int, beta: float, rng: torch.Generator) -> list[Tensor]:
    """Return node ids per client; every node goes to exactly one. Unlabelled nodes are divided like one more class.

    Raises:
        FglauditError: a client is left empty.
    """
    draws = np.random.default_rng(numpy_seed(rng))
    label = graph.y if graph.y.dim() == 1 else graph.y[:, 0]
    _, classes, sizes = torch.unique(label, return_inverse=True, return_counts=True)
    shares = torch.from_numpy(draws.dirichlet(np.full(clients, beta), size=len(sizes)))
    # Client k takes the nodes of a class whose rank among its shuffled nodes lies between two rounded cumulative
    # shares.
    ends = (shares.cumsum(1) * sizes.unsqueeze(1)).round().long()
    ends[:, -1] = sizes
    shuffled = torch.randperm(graph.num_nodes, generator=rng)
    shuffled = shuffled[torch.argsort(classes[shuffled], stable=True)]
    rank = torch.arange(graph.num_nodes) - (sizes.cumsum(0) - sizes)[classes[shuffled]]
    owner = torch.empty(graph.num_nodes, dtype=torch.long)
    # Classes follow each other on one number line, so a single search finds the client within the class.
    offset = (sizes.cumsum(0) - sizes).unsqueeze(1)
    line = (ends + offset).reshape(-1)
    place = torch.searchsorted(line, rank + offset.squeeze(1)[classes[shuffled]], right=True)
    owner[shuffled] = place % clients
    parts = lists_of(owner, clients)
    largest = int(sizes.max().item())
    # With fewer nodes in every class than clients, equal shares are rounded to the same few clients in every class.
    fix = (
        "raise beta, lower clients, or take another seed"
        if largest >= clients
        else f"no class has as many nodes as there are clients (the largest has {largest}), so that a larger beta does"
        " not help: lower clients, merge classes, or use scheme: louvain, which does not look at them"
    )
    refuse_empty(parts, "dirichlet", f"beta {beta:g} and {clients} clients", fix)
    return parts
