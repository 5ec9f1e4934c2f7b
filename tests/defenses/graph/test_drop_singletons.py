"""Single cross-client neighbours are dropped: a graph that a reader can redo by hand."""

from __future__ import annotations

import torch

from fglaudit.context import Context
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.graph import ClientGraph, FeatureKind, FederatedGraph, canonical_edges
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive


def test_drop_singletons_by_hand() -> None:
    """Edges 0-1, 0-2, 0-3, 1-3; client 0 holds nodes 0 and 1, client 1 nodes 2 and 3."""
    half = torch.tensor([False, True])
    graph = FederatedGraph(
        x=torch.eye(4),
        y=torch.tensor([0, 1, 0, 1]),
        edge_index=canonical_edges(torch.tensor([[0, 0, 0, 1], [1, 2, 3, 3]]), 4),
        clients=(torch.tensor([0, 1]), torch.tensor([2, 3])),
        train=(half, half),
        val=(half, half),
        test=(half, half),
        name="by hand",
        num_classes=2,
        features=FeatureKind.BINARY,
    )
    session = DropSingletons().bind(Context("fedgcn", 1, 2, 4, FedGCN().releases(graph)))
    first, second = (session.prepare(graph.client(k), derive(0)) for k in (0, 1))
    assert edges(first) == {(0, 2), (0, 3)}  # node 1 has node 3 alone and gives it up
    assert edges(second) == {(3, 0), (3, 1)}  # node 2 has node 0 alone and gives it up


def edges(client: ClientGraph) -> set[tuple[int, int]]:
    """Boundary edges in global ids."""
    own, remote = client.boundary
    return set(zip(client.nodes[own].tolist(), client.remote_nodes[remote].tolist(), strict=True))
