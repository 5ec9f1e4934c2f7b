"""Defenses that need no noise: small neighbourhoods dropped, neighbours merged, features left out."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from fedgat_runs import SMALL, mixed_graph
from stated_facts import stated
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.graph.fewer_features import FewerFeatures
from fglaudit.defenses.graph.merge_neighbors import MergeNeighbors
from fglaudit.defenses.graph.minimum_neighborhood import MinimumNeighborhood
from fglaudit.errors import FglauditError
from fglaudit.facts import KeptColumns
from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol
from fglaudit.nn.gat import unit_ball
from fglaudit.payloads import SERVER, MaskedMatrices, MaskedVectors, RawFeatures
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.fedgat.fedgat import FedGAT, Variant
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.testing import check_defense, example_graph, record
from fglaudit.view import Observer

EVERYONE = Observer(wire=True)


def kept_columns(session: DefenseSession) -> tuple[int, ...]:
    """Return the columns that the session keeps."""
    return stated(session, KeptColumns).ids


def bound(defense: Defense, graph: FederatedGraph, protocol: FederatedProtocol | None = None) -> DefenseSession:
    protocol = protocol or FedGAT(**SMALL)
    return defense.bind(Context("fedgat", 1, graph.num_clients, graph.num_features, protocol.releases(graph)))


def fan() -> FederatedGraph:
    """Client 0 owns nodes 0, 1, 2 and 3; node 0 has 1, node 1 two and node 2 five neighbours at client 1; 3 is linked
    to 2."""
    edges = canonical_edges(torch.tensor([[0, 1, 1, 2, 2, 2, 2, 2, 2], [4, 4, 5, 4, 5, 6, 7, 8, 3]]), 9)
    every = torch.ones(9, dtype=torch.bool)
    graph = Graph(torch.eye(9) / 2, torch.arange(9) % 2, edges, "fan")
    return federate(graph, [torch.arange(4), torch.arange(4, 9)], every, every, every)


def kept(graph: FederatedGraph, defense: Defense) -> list[tuple[int, int]]:
    client = bound(defense, graph).prepare(graph.client(0), derive(0))
    assert client.remote_degrees is not None and len(client.remote_degrees) == len(client.remote_nodes)
    return list(
        zip(client.nodes[client.boundary[0]].tolist(), client.remote_nodes[client.boundary[1]].tolist(), strict=True)
    )


def test_small_neighbourhoods_are_dropped() -> None:
    of_two = [(2, 4), (2, 5), (2, 6), (2, 7), (2, 8)]
    assert kept(fan(), MinimumNeighborhood(fewest=3)) == of_two
    assert kept(fan(), MinimumNeighborhood(fewest=2)) == [(1, 4), (1, 5), *of_two] == kept(fan(), DropSingletons())
    assert kept(fan(), MinimumNeighborhood(fewest=6)) == []


def rows_of(graph: FederatedGraph, defense: Defense, variant: Variant) -> dict[int, Tensor]:
    """The distinct rows in the messages about client 0's nodes, by node, ascending."""
    run = record(FedGAT(variant=variant, **SMALL | {"rounds": 1}), graph, defense)
    found = {}
    for batch in run.transcript.seen_by(Observer((0,))).of(MaskedMatrices if variant == "matrix" else MaskedVectors):
        payload = batch.payload
        for p in range(len(batch.receivers)):
            if isinstance(payload, MaskedVectors):
                rows = (payload.m2[p].T @ payload.k2[p]).T
            else:
                assert isinstance(payload, MaskedMatrices)
                b = payload.k1.shape[1] // 2
                weights = torch.arange(1.0, 1 + graph.num_features, dtype=torch.float64) ** 0.5
                left, _, right = torch.linalg.svd(torch.einsum("s,sab->ab", weights, payload.m2[p].double()))
                left, right = left[:, :b], right[:b].T
                rows = (
                    torch.einsum("aj,sab,bj->js", left, payload.m2[p].double(), right) * (left * right).sum(0)[:, None]
                )
            found[int(payload.node[p])] = torch.unique(rows.double().round(decimals=4) + 0.0, dim=0)
    return found


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_merged_neighbours_are_means_over_groups(variant: Variant) -> None:
    graph = fan()
    x = graph.x.double()
    found = rows_of(graph, MergeNeighbors(size=2), variant)
    pair, triple = (x[4] + x[5]) / 2, (x[6] + x[7] + x[8]) / 3
    expected = {0: [x[0]], 1: [x[1], pair], 2: [x[2], x[3], pair, triple], 3: [x[2], x[3]]}
    for node, rows in expected.items():
        wanted = torch.unique(torch.stack(rows).round(decimals=4) + 0.0, dim=0)
        torch.testing.assert_close(found[node], wanted, atol=2e-4, rtol=0)
    all_five = rows_of(graph, MergeNeighbors(size=3), variant)
    assert len(all_five[1]) == 1 and len(all_five[2]) == 3  # two are too few, five make one group


def test_groups_stay_within_neighbourhoods_and_are_large_enough() -> None:
    graph = mixed_graph(clients=6)
    for size in (2, 3):
        session = bound(MergeNeighbors(size), graph)
        center, neighbor = [], []
        for k in range(graph.num_clients):
            client = session.prepare(graph.client(k), derive(0))
            center.append(client.nodes[client.boundary[0]])
            neighbor.append(client.remote_nodes[client.boundary[1]])
        centers, order = torch.cat(center).sort(stable=True)
        neighbors = torch.cat(neighbor)[order]
        group = session.merge(centers, neighbors)
        counts = torch.bincount(group)
        assert counts.min() >= size and counts.max() < 2 * size
        for g in range(len(counts)):
            assert len(set(centers[group == g].tolist())) == 1
            outside = neighbors[(centers == centers[group == g][0]) & (group != g)]
            low, high = neighbors[group == g].min(), neighbors[group == g].max()
            assert not bool(((outside > low) & (outside < high)).any())


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_merging_keeps_sums_and_trains_on_what_is_sent(variant: Variant) -> None:
    graph = mixed_graph(torch.float32)
    merged = record(FedGAT(variant=variant, **SMALL), graph, MergeNeighbors(2))
    dropped = record(FedGAT(variant=variant, **SMALL), graph, DropSingletons())
    sums = []
    for run in (merged, dropped):
        parts = []
        for batch in run.transcript.seen_by(EVERYONE).of(FedGAT(variant=variant).masked):
            payload = batch.payload
            if isinstance(payload, MaskedVectors):
                parts.append((payload.m2.mT @ payload.k2).sum(2))
            else:
                assert isinstance(payload, MaskedMatrices)
                parts.append(torch.einsum("pa,psab,pb->ps", payload.k1, payload.m2, payload.k1))
        sums.append(torch.cat(parts))
    torch.testing.assert_close(sums[0], sums[1], atol=1e-4, rtol=1e-4)
    assert any(not torch.equal(w, dropped.trained.weights[name]) for name, w in merged.trained.weights.items())


def test_features_outside_a_public_subset_are_never_sent() -> None:
    graph = mixed_graph(torch.float32)
    other = dataclasses.replace(graph, x=1 - graph.x)
    defense = FewerFeatures(share=0.25)
    kept_features = kept_columns(bound(defense, graph))
    assert len(kept_features) == 6 and kept_features == kept_columns(bound(defense, other))
    assert kept_features != kept_columns(bound(FewerFeatures(share=0.25, subset=1), graph))
    run = record(FedGAT(**SMALL | {"rounds": 1}), graph, defense)
    (sent,) = run.transcript.seen_by(Observer((SERVER,))).of(RawFeatures)
    assert isinstance(sent.payload, RawFeatures)
    expected = torch.zeros_like(graph.x)
    expected[:, kept_features] = graph.x[:, kept_features]
    assert torch.equal(sent.payload.x, expected[sent.payload.nodes])
    first = next(iter(run.transcript.seen_by(Observer((0,))).of(MaskedMatrices))).payload
    assert isinstance(first, MaskedMatrices)
    missing = sorted(set(range(graph.num_features)) - set(kept_features))
    assert not first.m2[:, missing].any() and not first.k2[:, :, missing].any()
    assert float(unit_ball(expected).norm(dim=1).max()) <= 1 + 1e-6


@pytest.mark.parametrize("variant", ["matrix", "vector"])
@pytest.mark.parametrize(
    "defense", [MinimumNeighborhood(3), MergeNeighbors(2), FewerFeatures(0.5)], ids=lambda d: d.name
)
def test_conformance(defense: Defense, variant: Variant) -> None:
    check_defense(defense, FedGAT(variant=variant, **SMALL), mixed_graph(torch.float32), quick=True)


def test_where_they_do_not_apply() -> None:
    graph = example_graph()

    def refusal(defense: Defense, protocol: FederatedProtocol) -> str | None:
        releases, crossing = protocol.releases(graph), protocol.cross_edges(graph)
        name, features = type(protocol).name, graph.num_features
        return defense.unsupported(Context(name, 1, graph.num_clients, features, releases, cross_edges=crossing))

    for defense in (DropSingletons(), MinimumNeighborhood(), MergeNeighbors(), FewerFeatures()):
        assert refusal(defense, FedGAT()) is None
        assert "dist-gat" in (refusal(defense, DistGAT()) or "")
    assert refusal(MinimumNeighborhood(), FedGCN(hops=1)) is None
    assert "no masked neighbourhoods" in (refusal(MergeNeighbors(), FedGCN(hops=1)) or "")
    assert refusal(FewerFeatures(), FedGCN(hops=1)) is None
    assert "neither feature rows nor their sums" in (refusal(FewerFeatures(), NFedGNN()) or "")
    with pytest.raises(FglauditError, match="use remote: embeddings"):
        record(FedGAT(remote="matrices", **SMALL), mixed_graph(torch.float32), MergeNeighbors(2))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MinimumNeighborhood(fewest=1), "at least 2"),
        (lambda: MergeNeighbors(size=1), "size >= 2; got 1"),
        (lambda: FewerFeatures(share=0.0), r"in \(0, 1\); got 0"),
        (lambda: FewerFeatures(share=1.0), r"in \(0, 1\); got 1"),
    ],
)
def test_bad_fields(build: type[Defense], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        build()
