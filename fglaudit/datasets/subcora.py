"""subCora: connected subgraphs of 300 nodes of Cora, as in GFL-APPNP (Wu et al. 2022, appendix A.2.1).

800 random nodes are drawn; a connected component of theirs with 30 to 50 nodes, all 7 classes and a standard deviation
of the class counts of at most 2.5 becomes the training set. As many validation nodes are taken within two hops of it in
Cora, and test nodes, within two hops too, until there are 300. Edges are those of Cora among the nodes taken.

Where the text is silent: nodes are taken one by one at random among the neighbours of those taken before, so that the
graph stays connected (Assumption 3); the standard deviation is that of the population; random draws are repeated until
one has such a component, of which the first counts, so draws of different numbers may share training nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.graph import Graph, canonical_edges, components, edges_among
from fglaudit.rng import derive

SIZE, DRAWN, MAX_REDRAWS = 300, 800, 50000
COMPONENT_SIZES = (30, 50)
MAX_CLASS_DEVIATION = 2.5
HOPS = 2


def subcora(cora: Graph, draw: int = 0) -> Graph:
    """Return draw number ``draw`` of a subgraph of ``cora``, nodes renumbered in Cora's order.

    Raises:
        FglauditError: if no draw has a fitting component with enough nodes around it.
    """
    rng = derive(draw, "subcora")
    for _ in range(MAX_REDRAWS):
        train = _training_component(cora, rng)
        if train is None:
            continue
        near = train
        for _ in range(HOPS):
            near = near | neighbours(cora.edge_index, near)
        if int(near.sum().item()) >= SIZE:  # every node of it is linked to the component within it
            break
    else:
        raise FglauditError(
            f"subcora needs a component of {COMPONENT_SIZES} nodes with all classes and {SIZE} nodes within {HOPS}"
            f" hops; {MAX_REDRAWS} draws gave none"
        )
    size = int(train.sum().item())
    val = _grown(cora.edge_index, train, near, size, rng)
    test = _grown(cora.edge_index, train | val, near, SIZE - 2 * size, rng)
    nodes = (train | val | test).nonzero().squeeze(1)
    inside = canonical_edges(edges_among(nodes, cora.edge_index, cora.num_nodes), len(nodes))
    return Graph(cora.x[nodes], cora.y[nodes], inside, "subcora", train[nodes], val[nodes], test[nodes])


def _training_component(cora: Graph, rng: torch.Generator) -> Tensor | None:
    """Return a mask [N] of the first fitting component among 800 random nodes, or None."""
    nodes = torch.randperm(cora.num_nodes, generator=rng)[:DRAWN].sort().values
    label = components(edges_among(nodes, cora.edge_index, cora.num_nodes), DRAWN)
    sizes = torch.bincount(label)
    counts = torch.zeros(len(sizes), cora.num_classes).index_put_(
        (label, cora.y[nodes]), torch.ones(DRAWN), accumulate=True
    )
    fits = (sizes >= COMPONENT_SIZES[0]) & (sizes <= COMPONENT_SIZES[1])
    fits &= (counts > 0).all(1) & (counts.std(1, correction=0) <= MAX_CLASS_DEVIATION)
    if not bool(fits.any()):
        return None
    mask = torch.zeros(cora.num_nodes, dtype=torch.bool)
    mask[nodes[label == fits.nonzero()[0]]] = True
    return mask


def neighbours(edge_index: Tensor, nodes: Tensor) -> Tensor:
    """Return the mask [N] of nodes with a neighbour in the mask ``nodes`` [N]."""
    reached = torch.zeros_like(nodes)
    reached[edge_index[1, nodes[edge_index[0]]]] = True
    return reached


def _grown(edge_index: Tensor, start: Tensor, allowed: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """Return a mask [N] of ``count`` nodes of ``allowed`` [N] grown from ``start`` [N] along ``edge_index`` [2, E]."""
    taken = start.clone()
    for _ in range(count):
        candidates = (neighbours(edge_index, taken) & allowed & ~taken).nonzero().squeeze(1)
        taken[candidates[torch.randint(len(candidates), (1,), generator=rng)]] = True
    return taken & ~start
