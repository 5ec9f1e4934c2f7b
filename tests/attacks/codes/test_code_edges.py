"""Edges from public codes: every one of a small graph, and no certainty where a neighbourhood is too large."""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.attacks.codes.code_edges import CodeEdges
from fglaudit.graph import FederatedGraph, canonical_edges
from fglaudit.interfaces import Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer


def found(
    graph: FederatedGraph, observer: Observer, width: int = 48, **fields: int
) -> tuple[Inference, set[tuple[int, int]]]:
    """Return the attack's answer and the pairs that it is sure of."""
    run = record(StructureOnly(hops=(2,), width=width, rounds=1), graph)
    answer = CodeEdges(**fields).run(run.view(observer), rng=derive(0, "attack"), device=CPU)
    assert isinstance(answer, Inference)
    sure = answer.subjects[answer.estimate > 1].sort(1).values
    return answer, {(int(a), int(b)) for a, b in sure.tolist()}


def edges_at(graph: FederatedGraph, nodes: torch.Tensor) -> set[tuple[int, int]]:
    """Return the edges with an end among ``nodes``."""
    row, column = graph.edge_index
    use = (row < column) & (torch.isin(row, nodes) | torch.isin(column, nodes))
    return {(int(a), int(b)) for a, b in graph.edge_index[:, use].T.tolist()}


def boundary(graph: FederatedGraph) -> torch.Tensor:
    """Return the nodes with neighbours at other clients."""
    owner = graph.owner()
    row, column = graph.edge_index
    nodes: torch.Tensor = torch.unique(row[owner[row] != owner[column]])
    return nodes


def test_the_server_finds_every_edge_at_a_boundary_node_and_no_other() -> None:
    graph = example_graph()
    _, sure = found(graph, Observer(parties=(SERVER,)))
    assert sure == edges_at(graph, boundary(graph))


def test_a_client_finds_the_edges_of_its_remote_neighbours() -> None:
    graph = example_graph()
    _, sure = found(graph, Observer(parties=(0,)))
    assert sure == edges_at(graph, graph.client(0).remote_nodes)


def test_a_neighbourhood_larger_than_the_code_is_not_claimed() -> None:
    """A star of 40 leaves at two clients: its centre's row has 8 numbers for 41 weights."""
    star = torch.stack([torch.zeros(40, dtype=torch.long), torch.arange(1, 41)])
    graph = dataclasses.replace(example_graph(nodes=60), edge_index=canonical_edges(star, 60))
    answer, sure = found(graph, Observer(parties=(SERVER,)), width=8)
    centre = answer.subjects[(answer.subjects[:, 0] == 0) & (answer.estimate > 1)]
    assert len(centre) == 0
    assert sure <= edges_at(graph, torch.tensor([0]))  # leaves show their one edge
