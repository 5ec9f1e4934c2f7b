"""Partitions: who gets which node, which split, and what is lost."""

from __future__ import annotations

import builtins
import dataclasses
import os
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, Graph, canonical_edges
from fglaudit.partition import PartitionSpec, partition_facts, partition_schemes
from fglaudit.partition.assign import lists_of
from fglaudit.partition.schemes import Scheme
from fglaudit.rng import derive

ROOT = Path(os.environ.get("FGLAUDIT_DATA") or "../shared/data").resolve()
DATA = DatasetSpec("csbm", csbm=CsbmOptions(nodes=400, edges=900, classes=4, dimensions=20, ones_per_row=4))
RANDOM = DatasetSpec("csbm", csbm=DATA.csbm, split="random", train=0.2, val=0.3, test=0.5)
GRAPH = replace(DATA.load(), clients=(torch.arange(400) * 13) % 7)
SPECS = [
    PartitionSpec("dirichlet", 7, beta=1.0),
    PartitionSpec("dirichlet", 3, beta=10000),
    PartitionSpec("metis", 7),
    PartitionSpec("louvain", 7),
    PartitionSpec("overlapping", 10),
    PartitionSpec("unbalanced", 7),
    PartitionSpec("given", 7),
    PartitionSpec("per-node"),
]
DISJOINT = [s for s in SPECS if s.scheme not in ("overlapping", "unbalanced")]


def name_of(spec: PartitionSpec) -> str:
    return f"{spec.scheme}-{spec.clients}"


def apply(spec: PartitionSpec, seed: int = 0, dataset: DatasetSpec = DATA, graph: Graph = GRAPH) -> FederatedGraph:
    return spec.apply(graph, dataset, derive(seed, "partition"))


def test_every_scheme_is_tested() -> None:
    assert {spec.scheme for spec in SPECS} == set(partition_schemes())


@pytest.mark.parametrize("spec", DISJOINT, ids=name_of)
def test_every_node_exactly_once(spec: PartitionSpec) -> None:
    graph = apply(spec)
    assert graph.num_clients == (GRAPH.num_nodes if spec.scheme == "per-node" else spec.clients)
    assert torch.cat(graph.clients).sort().values.tolist() == list(range(GRAPH.num_nodes))
    assert torch.equal(graph.edge_index, GRAPH.edge_index)


def test_given_clients_are_those_of_the_graph_whatever_the_seed() -> None:
    assert GRAPH.clients is not None
    for seed in range(3):
        graph = apply(PartitionSpec("given", 7), seed)
        assert [nodes.tolist() for nodes in graph.clients] == [
            [node for node in range(400) if node * 13 % 7 == client] for client in range(7)
        ]


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
@pytest.mark.parametrize("dataset", [DATA, RANDOM], ids=["public", "random"])
def test_masks_are_aligned_disjoint_and_nodes_ascend(spec: PartitionSpec, dataset: DatasetSpec) -> None:
    graph = apply(spec, dataset=dataset)
    for nodes, train, val, test in zip(graph.clients, graph.train, graph.val, graph.test, strict=True):
        assert len(nodes) > 0 and bool((nodes.diff() > 0).all())
        assert train.shape == val.shape == test.shape == nodes.shape
        assert int((train.int() + val.int() + test.int()).max()) <= 1
        if dataset.split == "public":
            assert GRAPH.train is not None and torch.equal(train, GRAPH.train[nodes])
        elif spec.scheme != "per-node":
            assert abs(int(train.sum()) - 0.2 * len(nodes)) <= 0.5 and abs(int(val.sum()) - 0.3 * len(nodes)) <= 1
    if dataset.split == "random" and spec.scheme == "per-node":
        assert sum(int(mask.sum()) for mask in graph.train) == round(0.2 * GRAPH.num_nodes)


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_equal_seeds_give_equal_partitions_and_others_differ(spec: PartitionSpec) -> None:
    first, again, other = apply(spec, 1, RANDOM), apply(spec, 1, RANDOM), apply(spec, 2, RANDOM)
    for name in ("clients", "train", "val", "test"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(first, name), getattr(again, name), strict=True))
    same = all(torch.equal(a, b) for a, b in zip(first.train, other.train, strict=True))
    assert not same


def test_the_split_does_not_move_the_clients() -> None:
    public, random = apply(SPECS[0]), apply(SPECS[0], dataset=RANDOM)
    assert all(torch.equal(a, b) for a, b in zip(public.clients, random.clients, strict=True))


def test_overlapping_draws_halves_of_parts_and_splits_them_apart() -> None:
    graph = apply(PartitionSpec("overlapping", 10), dataset=RANDOM)
    assert {len(nodes) for nodes in graph.clients} <= set(range(95, 106))
    holders = torch.bincount(torch.cat(graph.clients), minlength=GRAPH.num_nodes)
    assert 0.01 < float((holders == 0).double().mean()) < 0.06  # 1 in 32 expected
    for first, second in combinations(range(5), 2):  # five halves of one part
        shared = len(set(graph.clients[first].tolist()) & set(graph.clients[second].tolist()))
        assert 30 < shared < 70
    a, b = graph.clients[0], graph.clients[1]
    differs = any(bool(graph.train[0][a == n] != graph.train[1][b == n]) for n in set(a.tolist()) & set(b.tolist()))
    assert differs, "random splits belong to (client, node)"
    with pytest.raises(FglauditError, match="disjoint clients"):
        graph.owner()


def test_a_shared_split_uses_a_node_alike_at_all_its_clients() -> None:
    graph = apply(PartitionSpec("overlapping", 10), dataset=replace(RANDOM, split="random-shared"))
    nodes = torch.cat(graph.clients)
    for masks in (graph.train, graph.val, graph.test):
        chosen = torch.zeros(GRAPH.num_nodes, 2, dtype=torch.bool)
        chosen[nodes, torch.cat(masks).long()] = True
        assert bool(chosen.any()) and not bool(chosen.all(1).any())
    used = torch.bincount(torch.cat(graph.test).long())
    assert used[1] / used.sum() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("scheme", ["unbalanced", "overlapping"])
def test_left_out_nodes_keep_their_ids_and_lose_their_edges(scheme: Scheme) -> None:
    graph = apply(PartitionSpec(scheme, 10))
    held = torch.zeros(GRAPH.num_nodes, dtype=torch.bool)
    held[torch.cat(graph.clients)] = True
    assert graph.num_nodes == GRAPH.num_nodes and not bool(held.all())
    assert bool(held[graph.edge_index].all())
    expected = GRAPH.edge_index[:, held[GRAPH.edge_index].all(0)]
    assert torch.equal(graph.edge_index, expected)


def test_unbalanced_keeps_between_a_tenth_and_all() -> None:
    whole, kept = apply(PartitionSpec("metis", 7)), apply(PartitionSpec("unbalanced", 7))
    for part in kept.clients:
        parts = [len(nodes) for nodes in whole.clients]
        assert 0.1 * min(parts) - 1 <= len(part) <= max(parts)
    assert len({len(part) for part in kept.clients}) > 3


def test_louvain_sizes_are_similar() -> None:
    sizes = [len(nodes) for nodes in apply(PartitionSpec("louvain", 7)).clients]
    assert max(sizes) <= 1.5 * GRAPH.num_nodes / 7 and min(sizes) >= 0.5 * GRAPH.num_nodes / 7


def test_metis_cuts_fewer_edges_than_dirichlet() -> None:
    metis, mixed = (partition_facts(apply(spec))["missing_links"] for spec in (PartitionSpec("metis", 7), SPECS[0]))
    assert isinstance(metis, int) and isinstance(mixed, int) and metis < 0.8 * mixed


def test_dirichlet_beta_sets_the_skew() -> None:
    skews = [
        partition_facts(apply(PartitionSpec("dirichlet", 5, beta=b)))["label_heterogeneity"] for b in (0.3, 3, 10000)
    ]
    assert skews[0] > skews[1] > skews[2]  # type: ignore[operator]
    assert skews[2] < 0.01  # type: ignore[operator]
    shares = torch.stack([torch.bincount(GRAPH.y[n], minlength=4) for n in apply(SPECS[1]).clients])
    assert int((shares.max(0).values - shares.min(0).values).max()) <= 5


@settings(max_examples=40, deadline=None)
@given(clients=st.integers(1, 20), beta=st.floats(0.01, 1e6), seed=st.integers(0, 1000))
def test_dirichlet_is_a_partition_or_names_the_empty_client(clients: int, beta: float, seed: int) -> None:
    try:
        graph = apply(PartitionSpec("dirichlet", clients, beta=beta), seed)
    except FglauditError as error:
        assert "leaves" in str(error) and "raise beta" in str(error)
        return
    assert torch.cat(graph.clients).sort().values.tolist() == list(range(GRAPH.num_nodes))


def test_dirichlet_matches_a_plain_loop() -> None:
    """The vectorised cut against one class after the other, from the same draws."""
    import numpy as np

    from fglaudit.partition.assign import numpy_seed
    from fglaudit.partition.dirichlet import dirichlet

    got = dirichlet(GRAPH, 6, 0.8, derive(3, "x"))
    rng = derive(3, "x")
    shares = np.random.default_rng(numpy_seed(rng)).dirichlet(np.full(6, 0.8), size=4)
    order = torch.randperm(GRAPH.num_nodes, generator=rng)
    expected: list[list[int]] = [[] for _ in range(6)]
    for c in range(4):
        members = [int(i) for i in order if GRAPH.y[i] == c]
        ends = [round(float(e)) for e in np.cumsum(shares[c]) * len(members)]
        ends[-1] = len(members)
        for k, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            expected[k] += members[start:stop]
    assert [nodes.tolist() for nodes in got] == [sorted(nodes) for nodes in expected]


def test_facts_by_hand() -> None:
    """A path 0-1-2-3 with labels 0 0 1 1 over clients {0, 1, 2} and {3}: one link is missing; cosine of (2,1) and
    (0,1)."""
    edges = canonical_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    none = torch.zeros(4, dtype=torch.bool)
    x, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
    whole = Graph(x=x, y=y, edge_index=edges, name="path")
    clients = (torch.tensor([0, 1, 2]), torch.tensor([3]))

    def federated(clients: tuple[torch.Tensor, ...]) -> FederatedGraph:
        masks = tuple(none[c] for c in clients)
        from fglaudit.graph import FeatureKind

        return FederatedGraph(x, y, edges, clients, masks, masks, masks, "path", 2, FeatureKind.BINARY)

    facts = partition_facts(federated(clients))
    assert facts["missing_links"] == 1 and facts["nodes"] == [3, 1] and facts["edges"] == 3
    assert facts["label_heterogeneity"] == pytest.approx(1 - 5**-0.5)
    assert facts["label_heterogeneity_with_self"] == pytest.approx((1 - 5**-0.5) / 2)
    overlap = partition_facts(federated((torch.tensor([0, 1]), torch.tensor([1, 2]))), whole)
    assert overlap["missing_links"] == 1 and overlap["nodes_at_no_client"] == 1
    tested = tuple(torch.ones_like(c, dtype=torch.bool) for c in clients)
    assert "chance" not in facts
    assert partition_facts(dataclasses.replace(federated(clients[:1]), test=tested[:1]))["chance"] == 2 / 3


def test_facts_count_links_of_the_whole_graph_where_given() -> None:
    graph = apply(PartitionSpec("unbalanced", 7))
    with_whole, alone = partition_facts(graph, GRAPH), partition_facts(graph)
    gone = (GRAPH.edge_index.shape[1] - graph.edge_index.shape[1]) // 2
    assert with_whole["missing_links"] == alone["missing_links"] + gone  # type: ignore[operator]


@pytest.mark.parametrize("beta", [None, 0.0, -1.0])
def test_dirichlet_needs_beta_above_zero(beta: float | None) -> None:
    with pytest.raises(FglauditError, match="beta > 0"):
        PartitionSpec("dirichlet", beta=beta)


@pytest.mark.parametrize("beta", [float("nan"), float("inf")])
def test_dirichlet_needs_a_finite_beta(beta: float) -> None:
    with pytest.raises(FglauditError, match=r"'beta' must be .* a number must be finite"):
        PartitionSpec("dirichlet", beta=beta)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scheme": "metiss"}, "did you mean 'metis'"),
        ({"scheme": "metis", "clients": 0}, "at least one client"),
        ({"scheme": "metis", "beta": 1.0}, "beta belongs to scheme: dirichlet"),
    ],
)
def test_bad_specifications(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        PartitionSpec(**fields)


def test_errors_at_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FglauditError, match="401 clients for the 400 nodes"):
        apply(PartitionSpec("louvain", 401))
    with pytest.raises(FglauditError, match="multiple of 5"):
        apply(PartitionSpec("overlapping", 7))
    with pytest.raises(FglauditError, match=r"leaves .* empty"):
        apply(PartitionSpec("dirichlet", 50, beta=0.01))
    with pytest.raises(FglauditError, match="names 7; write clients: 7"):
        apply(PartitionSpec("given", 10))
    with pytest.raises(FglauditError, match="names none"):
        apply(PartitionSpec("given", 7), graph=replace(GRAPH, clients=None))
    unsplit = Graph(x=GRAPH.x, y=GRAPH.y, edge_index=GRAPH.edge_index, name="own")
    with pytest.raises(FglauditError, match="use split: random"):
        apply(SPECS[0], graph=unsplit)
    real_import = builtins.__import__

    def without_metis(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pymetis":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_metis)
    with pytest.raises(FglauditError, match=r"fglaudit\[metis\]"):
        apply(PartitionSpec("metis", 3))


def test_nodes_of_nobody_are_in_no_list() -> None:
    lists = lists_of(torch.tensor([2, -1, 0, 2, -1, 0]), 4)
    assert [nodes.tolist() for nodes in lists] == [[2, 5], [], [0, 3], []]


@pytest.mark.parametrize(("clients", "links", "heterogeneity"), [(5, 403, 0.574), (10, 615, 0.638), (20, 853, 0.689)])
def test_metis_on_cora_comes_near_the_published_figures(clients: int, links: int, heterogeneity: float) -> None:
    """FedGT, tables 6 and 8: the mean over four seeds, on Cora's largest component."""
    if not (ROOT / "planetoid/Cora/raw").is_dir():
        pytest.skip(f"Cora is not under the data root {ROOT}")
    dataset = DatasetSpec("cora", root=str(ROOT), component="largest")
    graph = dataset.load()
    assert (graph.num_nodes, graph.edge_index.shape[1]) == (2485, 10138)
    facts = [partition_facts(apply(PartitionSpec("metis", clients), s, dataset, graph)) for s in range(4)]
    assert sum(f["missing_links"] for f in facts) / 4 == pytest.approx(links, rel=0.1)  # type: ignore[misc]
    assert sum(f["label_heterogeneity_with_self"] for f in facts) / 4 == pytest.approx(heterogeneity, abs=0.06)  # type: ignore[misc]


def test_classes_smaller_than_the_number_of_clients_are_told_what_helps() -> None:
    graph = replace(GRAPH, y=torch.arange(400))
    with pytest.raises(FglauditError, match=r"\(the largest has 1\).*a larger beta does not help: lower clients"):
        apply(PartitionSpec("dirichlet", 3, beta=10000), graph=graph)
