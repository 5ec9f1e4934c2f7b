"""Attacks on FedGAT's exchanged embeddings, recorded from the protocol itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache

import torch
from scored_runs import game_of, self_test
from torch import Tensor

from fglaudit.adversary.priors.prior_only import prior_only
from fglaudit.attacks.neighborhoods.embedding_equations import embedding_equations
from fglaudit.attacks.neighborhoods.embedding_inversion import EmbeddingInversion
from fglaudit.attacks.neighborhoods.embedding_neighbors import EmbeddingNeighbors
from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.graph import canonical_edges
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import Embeddings, MessageBatch, Payload
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.quantities.rows.game import score
from fglaudit.rng import derive
from fglaudit.scoring.selftest import NoiseMessages
from fglaudit.testing import CPU, Run, check_attack, example_graph, record
from fglaudit.view import Messages, Observer, View

CLIENT = Observer((0,))


@dataclasses.dataclass(frozen=True)
class Without:
    """The same messages without embeddings."""

    messages: Messages

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        return iter(()) if payload is Embeddings else self.messages.of(payload)


@cache
def run() -> Run:
    return record(FedGAT(rounds=16), example_graph(nodes=120, features=80, clients=3))


def rate(view: View, result: Reconstruction) -> float:
    found = score([game_of(run(), CLIENT)], [result])
    assert found.false_proofs == 0
    return float(found.rows.exact_rate.mean())


def attacked(view: View) -> Reconstruction:
    return JointDiagonalisation().run(view, rng=derive(0, "attack"), device=CPU)


def test_equations_hold_for_the_true_rows() -> None:
    """``y sum_k e_jk = W' sum_k e_jk h_k`` over the closed neighbourhood, in float32's precision."""
    view, graph = run().view(CLIENT), run().graph
    equations = embedding_equations(view, 4)
    assert equations is not None
    x = graph.x.double() / graph.x.double().norm(dim=1, keepdim=True).clamp(min=1)
    for place, node in enumerate(equations.nodes.tolist()):
        members = torch.cat([graph.edge_index[1, graph.edge_index[0] == node], torch.tensor([node])])
        e = equations.series(x[node] @ equations.own.T + x[members] @ equations.neighbor.T)
        sums = (equations.per_unit(e) * (x[members] @ equations.weight)).sum(0)
        assert torch.allclose(equations.means[place] * equations.per_unit(e.sum(0)), sums, atol=1e-5)


def test_embeddings_tell_whose_row_it_is() -> None:
    view = run().view(CLIENT)
    blind = rate(view, attacked(dataclasses.replace(view, messages=Without(view.messages))))
    told = rate(view, attacked(view))
    assert told >= blind + 0.1
    assert told >= 0.9


def test_two_neighbours_of_one_node_are_told_apart() -> None:
    """Node 0 has neighbours 2 and 3 at the other client; node 2 also has 4. Intersections cannot settle it, embeddings
    do."""
    base = example_graph(nodes=12, features=40, clients=2)
    edges = canonical_edges(torch.tensor([[0, 0, 2, 3, 1], [2, 3, 4, 5, 0]]), 12)
    clients = (torch.tensor([0, 1, 6, 7, 8]), torch.tensor([2, 3, 4, 5, 9, 10, 11]))
    masks = tuple(torch.ones(len(c), dtype=torch.bool) for c in clients)
    graph = dataclasses.replace(base, edge_index=edges, clients=clients, train=masks, val=masks, test=masks)
    small = record(FedGAT(rounds=4), graph)
    result = attacked(small.view(CLIENT))
    assert result.nodes.tolist() == [2, 3]
    assert torch.equal(result.rows, graph.x[[2, 3]])
    assert result.proven is not None and not bool(result.proven.any())  # a likelihood, no proof


def lone(view: View) -> Tensor:
    """Remote nodes all of whose neighbours are the observer's."""
    client = view.own[0]
    assert client.remote_degrees is not None
    known = torch.bincount(client.boundary[1], minlength=len(client.remote_nodes))
    return client.remote_nodes[known == client.remote_degrees]


def test_nodes_among_own_neighbours_only_are_inverted_exactly() -> None:
    view = run().view(CLIENT)
    result = EmbeddingInversion().run(view, rng=derive(0, "attack"), device=CPU)
    assert result.claimed is not None
    alone = torch.isin(result.nodes, lone(view))
    assert torch.equal(result.claimed, alone)
    assert int(alone.sum()) > 0
    assert torch.equal(result.rows[alone], run().graph.x[result.nodes[alone]])


def test_the_inversion_proves_itself_and_keeps_its_promises() -> None:
    attack, view = EmbeddingInversion(), run().view(CLIENT)
    game = game_of(run(), CLIENT)
    control = prior_only(view, game.targets, derive(0, "control"))
    assert self_test(attack, view, game, control) is None
    check_attack(attack, view)
    check_attack(attack, run().view(Observer((0, 2), auxiliary=0.2)))
    assert attack.unsupported(run().view(Observer((-1,)))) is not None
    assert attack.unsupported(dataclasses.replace(view, messages=Without(view.messages))) is not None


def test_edges_between_nodes_of_others_are_found() -> None:
    view, graph = run().view(CLIENT), run().graph
    attack = EmbeddingNeighbors()
    result = attack.run(view, rng=derive(0, "attack"), device=CPU)
    edges = {tuple(pair) for pair in graph.edge_index.T.tolist()}
    listed = [tuple(pair) for pair in result.subjects.tolist()]
    twice = [pair for pair, witnesses in zip(listed, result.estimate.tolist(), strict=True) if witnesses == 2]
    assert not torch.isin(result.subjects, view.own[0].nodes).any()
    assert len(twice) >= 10
    assert sum(pair in edges for pair in twice) >= 0.95 * len(twice)


def test_edges_prove_themselves() -> None:
    view, attack = run().view(CLIENT), EmbeddingNeighbors()
    check_attack(attack, view)
    planted = attack.plant(view, rng=derive(0, "plant"))
    result = attack.run(planted.view, rng=derive(0, "attack"), device=CPU)
    assert {tuple(sorted(p)) for p in planted.nodes.tolist()} == {tuple(p) for p in result.subjects.tolist()}
    blind = dataclasses.replace(view, messages=NoiseMessages(view.messages, 1))
    lost = attack.run(blind, rng=derive(0, "attack"), device=CPU)
    truth = {tuple(pair) for pair in run().graph.edge_index.T.tolist()}
    listed = [tuple(pair) in truth for pair in lost.subjects.tolist()]
    assert sum(listed) <= 0.2 * len(truth) / 2
