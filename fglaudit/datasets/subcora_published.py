"""The subgraphs of Cora that GFL-APPNP's authors drew: seeds and component numbers from their code.

``subcora.py`` of ``MingxuanZhangPurdue/GFL-APPNP`` (7e30252): 800 nodes are drawn with a seed, the component of the
given number, from the largest on, is the training set; validation and test nodes are the first ones of the nodes within
two hops of it, in the order of a Python set of their numbers, so mostly those with the smallest numbers. Nothing keeps
them connected with each other. Components of equal size are taken in the order of their smallest node.
"""

from __future__ import annotations

import torch

from fglaudit.datasets.subcora import DRAWN, HOPS, SIZE, neighbours
from fglaudit.errors import FglauditError
from fglaudit.graph import Graph, canonical_edges, components, edges_among
from fglaudit.rng import as_published

SEEDS = (
    101993, 124709, 196252, 95930, 68222, 101539, 22989, 45367, 166831, 189085, 12237, 242044, 40182, 84405, 234468,
    233451, 154898, 81745, 70716, 39777, 248183, 109371, 112311, 229323, 2160, 219137, 221729, 98972, 238056, 265088,
    90081, 271232, 260735, 96076, 121375, 11447,
)  # fmt: skip
COMPONENTS = (
    1, 0, 2, 3, 2, 1, 2, 1, 2, 2, 0, 1, 1, 2, 0, 1, 2, 1, 2, 1, 3, 0, 0, 0, 1, 2, 1, 0, 1, 1, 0, 0, 3, 0, 0, 1,
)  # fmt: skip


def subcora_published(cora: Graph, draw: int = 0) -> Graph:
    """Return the authors' subgraph number ``draw``; their tables use the first 20. Nodes keep Cora's order.

    Raises:
        FglauditError: there is no such draw.
    """
    if not 0 <= draw < len(SEEDS):
        raise FglauditError(f"subcora-published has draws 0 to {len(SEEDS) - 1}; got {draw}; use one of them")
    drawn = torch.randperm(cora.num_nodes, generator=as_published(SEEDS[draw]))[:DRAWN].sort().values
    label = components(edges_among(drawn, cora.edge_index, cora.num_nodes), DRAWN)
    sizes = torch.bincount(label)
    first = torch.full_like(sizes, DRAWN).scatter_reduce(0, label, torch.arange(DRAWN), "amin")
    order = sorted(range(len(sizes)), key=lambda each: (-int(sizes[each]), int(first[each])))
    train = torch.zeros(cora.num_nodes, dtype=torch.bool)
    train[drawn[label == order[COMPONENTS[draw]]]] = True
    near = train
    for _ in range(HOPS):
        near = near | neighbours(cora.edge_index, near)
    count = int(train.sum().item())
    others = list(set(near.nonzero().squeeze(1).tolist()) - set(train.nonzero().squeeze(1).tolist()))
    val, test = torch.zeros_like(train), torch.zeros_like(train)
    val[others[:count]] = True
    test[others[count : SIZE - count]] = True
    nodes = (train | val | test).nonzero().squeeze(1)
    inside = canonical_edges(edges_among(nodes, cora.edge_index, cora.num_nodes), len(nodes))
    return Graph(cora.x[nodes], cora.y[nodes], inside, "subcora-published", train[nodes], val[nodes], test[nodes])
