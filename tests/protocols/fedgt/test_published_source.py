"""FedGT as its authors' code computes it: the network node by node, draws without replacement, clustering, attacks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.attacks.global_nodes.global_node_centroids import GlobalNodeCentroids
from fglaudit.attacks.global_nodes.global_node_labels import GlobalNodeLabels
from fglaudit.attacks.global_nodes.global_node_membership import GlobalNodeMembership
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.nn.graph_transformer import Dropout
from fglaudit.nn.online_clustering import Clustering
from fglaudit.nn.two_attention_transformer import Surrounded, TwoAttentionTransformer
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER
from fglaudit.protocols.baselines.local_gt import LocalGT
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates, find_candidates
from fglaudit.protocols.fedgt.ppr import exact_pagerank
from fglaudit.protocols.fedgt.sources import AS_PUBLISHED
from fglaudit.protocols.fedgt.surrounding_sequences import over_degrees
from fglaudit.rng import derive
from fglaudit.structure import Centroids, Training, Transformer
from fglaudit.testing import check_attack, check_protocol, example_graph, record
from fglaudit.view import Observer

SERVER_WITH_ROWS = Observer((SERVER,), auxiliary=0.3)
SMALL: dict[str, Any] = {
    **AS_PUBLISHED, "rounds": 2, "hidden": 8, "heads": 2, "feed_forward": 8, "global_nodes": 3, "neighbors": 4,
    "candidates": 8,
}  # fmt: skip


def small_graph(**changes: Any) -> FederatedGraph:
    return example_graph(**({"classes": 2} | changes))


def test_conformance() -> None:
    check_protocol(FedGT(**SMALL), small_graph())


def test_conformance_of_the_local_form() -> None:
    fields = {name: value for name, value in SMALL.items() if name != "similarity"}
    check_protocol(LocalGT(**fields), small_graph())


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(FglauditError, match="source"):
        FedGT(source="codes")  # type: ignore[arg-type]


def test_the_network_follows_its_equations_row_by_row() -> None:
    shape = TwoAttentionTransformer(layers=2, hidden=8, heads=2, feed_forward=6, tokens=2, powers=3)
    layout = shape.layout(4, 3)
    size = len(shape.initial(layout, derive(0)))
    model = torch.randn(1, size, generator=derive(1), dtype=torch.float64) * 0.5
    w = unflatten(model, layout)
    inputs = torch.randn(1, 5, 8, generator=derive(2), dtype=torch.float64)
    far = torch.randn(1, 3, 8, generator=derive(3), dtype=torch.float64)
    nodes = torch.tensor([[[0, 1, 0, 3], [4, 2, 2, 1]]])
    near = torch.rand(1, 2, 4, 4, 3, generator=derive(4), dtype=torch.float64)
    missing = torch.zeros(1, 2, 4, dtype=torch.bool)
    missing[0, 1, 3] = True
    found = shape.logits(w, inputs, Surrounded(nodes, lambda part: near[:, part], missing), far, Dropout(0, None))

    def affine(name: str, rows: Tensor) -> Tensor:
        return rows @ w[f"{name}.weight"][0] + w[f"{name}.bias"][0]

    def norm(name: str, row: Tensor) -> Tensor:
        plain = (row - row.mean(-1, keepdim=True)) / (row.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        return plain * w[f"{name}.scale"][0] + w[f"{name}.shift"][0]

    for m in range(2):
        rows = torch.cat([inputs[0, nodes[0, m]], w["tokens.rows"][0]])
        kept = [j for j in range(6) if j >= 4 or not missing[0, m, j]]
        for index in range(2):
            name = f"layers.{index}"
            normed = norm(f"{name}.norm_attention", rows)
            query = affine(f"{name}.query", normed)
            key, value = affine(f"{name}.key_value", normed).chunk(2, 1)
            far_key, far_value = affine(f"{name}.global_key_value", far[0]).chunk(2, 1)
            outputs = []
            for i in range(6):
                heads, global_heads = [], []
                for h in range(2):
                    part = slice(4 * h, 4 * h + 4)
                    scores = []
                    for j in kept:
                        token = j - 4 if j >= 4 else i - 4
                        phi = near[0, m, i, j] if max(i, j) < 4 else w["tokens.proximity"][0, token]
                        bias = phi @ w[f"{name}.proximity.weight"][0, :, h] + w[f"{name}.proximity.bias"][0, h]
                        scores.append(query[i, part] @ key[j, part] / 2 + bias)
                    heads.append(torch.stack(scores).softmax(0) @ value[kept, part])
                local = affine(f"{name}.output", torch.cat(heads))
                asked = affine(f"{name}.global_query", local)
                for h in range(2):
                    part = slice(4 * h, 4 * h + 4)
                    global_heads.append((far_key[:, part] @ asked[part] / 2).softmax(0) @ far_value[:, part])
                beside = rows[i] + local
                both = torch.cat([beside, beside + affine(f"{name}.global_output", torch.cat(global_heads))])
                inner = functional.gelu(affine(f"{name}.expand", norm(f"{name}.norm_feed_forward", both)))
                outputs.append(beside + affine(f"{name}.contract", inner))
            rows = torch.stack(outputs)
        expected = affine("classes", norm("norm", rows[0]))
        assert torch.allclose(found[0, m], expected, atol=1e-10)


def test_the_first_model_is_drawn_as_theirs() -> None:
    shape = TwoAttentionTransformer(layers=2, hidden=64, heads=4, feed_forward=32, tokens=2, powers=6)
    layout = shape.layout(100, 7)
    drawn = unflatten(shape.initial(layout, derive(0)).unsqueeze(0), layout)
    assert abs(float(drawn["input.weight"].std()) - 0.02 / 2**0.5) < 5e-4
    assert abs(float(drawn["tokens.rows"].std()) - 0.02) < 4e-3
    assert bool((drawn["layers.1.norm_feed_forward.scale"] == 1).all()) and not bool(drawn["classes.bias"].any())


def test_different_candidates_are_drawn_in_proportion_to_their_scores() -> None:
    nodes = torch.tensor([3, 1, 4, 2]).expand(1, 5, 4)
    pool = Candidates(nodes, torch.tensor([4.0, 2.0, 2.0, 0.0]).expand(1, 5, 4))
    rows = torch.zeros(1, 4000, dtype=torch.long)
    drawn, found = pool.draw_distinct(rows, 2, derive(0))
    assert bool(found.all()) and not bool((drawn == 2).any()) and not bool((drawn[..., 0] == drawn[..., 1]).any())
    first = torch.bincount(drawn[0, :, 0], minlength=5) / 4000
    assert torch.allclose(first[[3, 1, 4]], torch.tensor([0.5, 0.25, 0.25]), atol=0.03)
    second_after_three = drawn[0, drawn[0, :, 0] == 3, 1]
    assert abs(float((second_after_three == 1).float().mean()) - 0.5) < 0.04
    assert bool((pool.draw_distinct(rows, 4, derive(0))[1].sum(2) == 3).all())


def test_scores_are_those_of_walks_that_end_at_the_node() -> None:
    graph = small_graph()
    clients = [graph.client(k) for k in range(graph.num_clients)]
    count = len(clients[0].nodes)
    weighted = over_degrees(find_candidates(clients, "ppr", count, 0.15, derive(0)), clients)
    dense = torch.zeros(count, count).index_put((weighted.nodes[0][:, :1], weighted.nodes[0]), torch.zeros(1))
    dense.scatter_(1, weighted.nodes[0][:count], weighted.scores[0][:count])
    ends = exact_pagerank(clients[0].edge_index, count, 0.15).T
    assert torch.allclose(dense / dense.sum(1, keepdim=True), ends / ends.sum(1, keepdim=True), atol=1e-5)


def test_normalised_clusters_follow_the_batch_statistics() -> None:
    rows = torch.randn(2, 6, 4, generator=derive(0)) * 3 + 1
    present = torch.ones(2, 6, dtype=torch.bool)
    present[1] = False
    centers = torch.rand(2, 2, 4, generator=derive(1))
    state = Clustering.of(centers)
    norm = torch.nn.BatchNorm1d(4, affine=False, momentum=None)
    book, counts, moved = centers[0], torch.ones(2), centers
    for _ in range(3):
        moved, state = state.after(rows, present, moved, 0.9, normalised=True)
        inner = norm(rows[0])
        nearest = torch.cdist(inner, book).argmin(1)
        kinds = functional.one_hot(nearest, 2).float()
        book = 0.9 * counts.unsqueeze(1) * book + 0.1 * kinds.T @ inner
        counts = 0.9 * counts + 0.1 * kinds.sum(0)
        book = book / counts.unsqueeze(1)
        assert norm.running_mean is not None and norm.running_var is not None
        assert torch.allclose(moved[0], book * (norm.running_var + 1e-5).sqrt() + norm.running_mean, atol=1e-5)
        rows = rows + 0.3
    assert torch.equal(moved[1], centers[1]) and float(state.batches[1]) == 0


def test_its_network_and_clustering_are_public() -> None:
    stated = FedGT(**SMALL).structure(small_graph())
    assert stated.of(Transformer) == Transformer(2, 8, 2, 8, separate_global=True, tokens=2, powers=6)
    assert stated.of(Centroids) == Centroids(3, 8, 0.9, normalised=True)
    assert stated.of(Training).learning_rate == 0.01 and stated.of(Training).weight_decay == 1e-6


@pytest.mark.parametrize("attack", [GlobalNodeLabels(), GlobalNodeCentroids(), GlobalNodeMembership()])
def test_attacks_read_its_messages(attack: Any) -> None:
    graph = small_graph(nodes=90)
    run = record(FedGT(**{**SMALL, "rounds": 4}), graph)
    check_attack(attack, run.view(SERVER_WITH_ROWS))
