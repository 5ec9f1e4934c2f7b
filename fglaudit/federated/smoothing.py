"""Propagating what arrived noisy: post-processing, at no epsilon (Dwork and Roth 2014, proposition 2.1).

One step is ``S <- A S`` over closed neighbourhoods, ``A_ij = 1 / sqrt((d_i + 1)(d_j + 1))`` with degrees in the whole
graph: noise that is independent per row averages out, and what neighbours have in common stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.sparse_tensors import csr


def propagated(rows: Tensor, edges: KeptEdges, hops: int) -> Tensor:
    """Return ``rows`` [N, D] after ``hops`` steps, for a party that holds all of them and knows ``edges``."""
    scale = edges.scale().to(rows)
    weight = scale[edges.receivers().long()] * scale[edges.source.long()]
    step = csr(edges.start, edges.source.long(), weight, len(rows))
    for _ in range(hops):
        rows = step @ rows
    return rows


def random_rows(clients: Sequence[ClientGraph], graph: FederatedGraph) -> bool:
    """Whether clients use random rows: entries that were zero are so no longer, and no clip or choice of columns does
    that."""
    return any(bool((client.x[graph.x[client.nodes] == 0] != 0).any()) for client in clients)


def remarks(hops: int, noisy: bool, what: str, without: str, example: int = 16) -> tuple[str, ...]:
    """Return what a reader must know where noise and smoothing do not come together.

    Args:
        what: is smoothed, e.g. "sums".
        without: what smoothing does where there is no noise.
    """
    if noisy and not hops:
        return (
            f"the noisy {what} are used as they arrive; smoothing_hops, e.g. {example}, smooths them at no epsilon",
        )
    if hops and not noisy:
        return (f"smoothing_hops: {hops} without noise on the {what}: {without}",)
    return ()
