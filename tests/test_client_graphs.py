"""What a client holds is found without reading what the others hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fglaudit.graph import ClientGraph, FederatedGraph, Graph, canonical_edges, federate
from fglaudit.rng import derive


def plainly(graph: FederatedGraph, k: int) -> ClientGraph:
    """Return what client ``k`` holds, edge by edge."""
    nodes = graph.clients[k].tolist()
    edges = graph.edge_index.T.tolist()
    inner = [[nodes.index(i), nodes.index(j)] for i, j in edges if i in nodes and j in nodes]
    cross = [(nodes.index(i), j) for i, j in edges if i in nodes and j not in nodes]
    remote = sorted({j for _, j in cross})
    degrees = [sum(i == node for i, _ in edges) for node in range(graph.num_nodes)]
    return ClientGraph(
        client=k,
        nodes=graph.clients[k],
        x=graph.x[nodes],
        y=graph.y[nodes],
        edge_index=torch.tensor(inner, dtype=torch.long).reshape(-1, 2).T,
        degrees=torch.tensor([degrees[node] for node in nodes], dtype=torch.long),
        remote_nodes=torch.tensor(remote, dtype=torch.long),
        remote_degrees=torch.tensor([degrees[node] for node in remote], dtype=torch.long),
        boundary=torch.tensor([[i, remote.index(j)] for i, j in cross], dtype=torch.long).reshape(-1, 2).T,
        train=graph.train[k],
        val=graph.val[k],
        test=graph.test[k],
    )


def drawn(seed: int, nodes: int, edges: int, clients: int, *, mixed: bool = False) -> FederatedGraph:
    """Return a graph whose clients overlap and leave nodes out; ``mixed``: its edges are in no order."""
    rng = derive(seed, "client graphs")
    index = canonical_edges(torch.randint(nodes, (2, edges), generator=rng), nodes)
    if mixed:
        index = index[:, torch.randperm(index.shape[1], generator=rng)]
    whole = Graph(torch.rand(nodes, 3, generator=rng), torch.randint(3, (nodes,), generator=rng), index, "drawn")
    held = [(torch.rand(nodes, generator=rng) < 0.4).nonzero().squeeze(1) for _ in range(clients)]
    return federate(whole, held, *(torch.rand(nodes, generator=rng) < 0.5 for _ in range(3)))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_client_holds_what_going_through_all_edges_finds(seed: int, mixed: bool) -> None:
    graph = drawn(seed, nodes=3 + seed, edges=seed * 4, clients=4, mixed=mixed)
    for k in range(graph.num_clients):
        found, expected = graph.client(k), plainly(graph, k)
        for field in dataclasses.fields(ClientGraph):
            one, other = getattr(found, field.name), getattr(expected, field.name)
            assert one.equal(other) and one.dtype == other.dtype if isinstance(one, Tensor) else one == other, field


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the size of the largest tensor that an operation gives which copies."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for made in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(made, Tensor) and made._base is None:
                self.size = max(self.size, made.numel())
        return found


def test_one_client_of_many_is_found_in_time_of_its_own_edges() -> None:
    nodes = 3000
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    whole = Graph(torch.ones(nodes, 2), torch.zeros(nodes, dtype=torch.long), canonical_edges(ring, nodes), "ring")
    every = torch.ones(nodes, dtype=torch.bool)
    graph = federate(whole, [torch.tensor([k]) for k in range(nodes)], every, ~every, ~every)
    graph.client(0)  # sorts the edges
    with _Largest() as seen:  # type: ignore[no-untyped-call]
        assert graph.client(7).remote_nodes.tolist() == [6, 8]
    assert seen.size < 100
