"""Many GCNs as one batch do what each does alone."""

from __future__ import annotations

import torch

from fglaudit.nn.gcn_ensemble import (
    EnsembleSettings,
    OwnGraphs,
    SharedGraph,
    ensemble_logits,
    train_ensemble,
)
from fglaudit.nn.weights import gcn_layout, unflatten
from fglaudit.rng import derive
from fglaudit.testing import example_graph

GRAPH = example_graph()
LAYOUT = gcn_layout(GRAPH.num_features, 5, GRAPH.num_classes, 2)


def test_logits_are_the_formula() -> None:
    vectors = torch.randn(3, sum(a * b for a, b in LAYOUT.values()), generator=derive(0, "models"))
    found = ensemble_logits(SharedGraph.of(GRAPH.x, GRAPH.edge_index), unflatten(vectors, LAYOUT))
    adjacency = torch.eye(GRAPH.num_nodes)
    adjacency[tuple(GRAPH.edge_index)] = 1
    scale = adjacency.sum(1).rsqrt()
    adjacency = scale[:, None] * adjacency * scale
    for model, (first, second) in enumerate(zip(*unflatten(vectors, LAYOUT).values(), strict=True)):
        expected = adjacency @ (adjacency @ GRAPH.x @ first).relu() @ second
        torch.testing.assert_close(found[model], expected, rtol=1e-4, atol=1e-4)


def test_a_model_does_not_depend_on_the_others_in_the_batch() -> None:
    """The second model's members change; the first one's weights do not, and its own members are learned."""
    graph, settings = SharedGraph.of(GRAPH.x, GRAPH.edge_index), EnsembleSettings(5, steps=150, learning_rate=0.05)
    half = torch.rand(GRAPH.num_nodes, generator=derive(0, "members")) < 0.5
    members = torch.stack([half, ~half])
    other = torch.stack([members[0], torch.ones_like(members[0])])
    first, second = (train_ensemble(graph, LAYOUT, GRAPH.y, m, settings, derive(0, "train")) for m in (members, other))
    torch.testing.assert_close(first[0], second[0])
    assert not torch.allclose(first[1], second[1])
    right = ensemble_logits(graph, unflatten(first, LAYOUT)).argmax(2) == GRAPH.y
    assert float(right[0][members[0]].float().mean().item()) > 0.9


def test_models_with_edges_of_their_own_are_those_of_each_graph_alone() -> None:
    vectors = torch.randn(2, sum(a * b for a, b in LAYOUT.values()), generator=derive(0, "models"))
    weights = unflatten(vectors, LAYOUT)
    kept = torch.stack([torch.ones(GRAPH.edge_index.shape[1], dtype=torch.bool), GRAPH.edge_index.sum(0) % 2 == 0])
    found = ensemble_logits(OwnGraphs.of(GRAPH.x, GRAPH.edge_index, kept), weights)
    for model, mask in enumerate(kept):
        alone = SharedGraph.of(GRAPH.x, GRAPH.edge_index[:, mask])
        expected = ensemble_logits(alone, {name: w[model : model + 1] for name, w in weights.items()})[0]
        torch.testing.assert_close(found[model], expected, rtol=1e-4, atol=1e-4)
