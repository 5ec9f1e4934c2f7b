"""FedGT's attention layers, and GraphSAGE's, against their equations and plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.nn import graph_transformer
from fglaudit.nn.graph_transformer import Dropout, GraphTransformer, Neighborhood, hybrid_layer, initial_model
from fglaudit.nn.weights import unflatten
from fglaudit.protocols.baselines.sage import Sage
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates, find_candidates
from fglaudit.protocols.fedgt.receptive_field import draw_field, trim
from fglaudit.rng import derive
from fglaudit.testing import example_graph

NONE = Dropout(0, None)


def model(shape: GraphTransformer, inputs: int, classes: int, clients: int, seed: int = 0) -> dict[str, Tensor]:
    layout = shape.layout(inputs, classes)
    vectors = torch.stack([initial_model(layout, derive(seed, "model", k)) for k in range(clients)]).double()
    vectors += 0.1 * torch.randn(vectors.shape, generator=derive(seed, "shift"), dtype=torch.float64)
    return unflatten(vectors, layout)


def test_layer_is_the_attention_of_equations_2_to_6() -> None:
    """One node at a time: keys are its sampled nodes, each as often as it counts, and the global nodes."""
    shape = GraphTransformer(1, 8, 2, 12)
    weights = model(shape, 5, 3, 2)
    rng = derive(0, "rows")
    rows, centers = (torch.randn(2, n, 8, generator=rng, dtype=torch.float64) for n in (6, 3))
    # Scores that make node 0 count its first candidate three times and its second once, and others all four once.
    scores = torch.tensor([[3.0, 1.0, 0.0, 0.0], *[[1.0] * 4] * 5]).expand(2, 6, 4)
    candidates = Candidates(torch.randint(6, (2, 6, 4), generator=rng), scores)
    field = draw_field(candidates, None, torch.ones(2, 6, dtype=torch.bool), 1, 4, None)
    outputs, moved = hybrid_layer(weights, 0, 2, rows, field.layers[0], centers, NONE)

    def affine(k: int, name: str, x: Tensor) -> Tensor:
        return x @ weights[f"layers.0.{name}.weight"][k] + weights[f"layers.0.{name}.bias"][k]

    def norm(k: int, name: str, x: Tensor) -> Tensor:
        plain = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return plain * weights[f"layers.0.{name}.scale"][k] + weights[f"layers.0.{name}.shift"][k]

    def expected(k: int, own: Tensor, others: Tensor) -> Tensor:
        query = affine(k, "query", norm(k, "norm_attention", own))
        key, value = affine(k, "key_value", norm(k, "norm_attention", others)).view(-1, 2, 8).unbind(1)
        heads = [
            torch.softmax(key[:, h : h + 4] @ query[h : h + 4] / 2, 0) @ value[:, h : h + 4] for h in (0, 4)
        ]  # d_K = 4
        middle = own + affine(k, "output", torch.cat(heads))
        inner = torch.nn.functional.gelu(affine(k, "expand", norm(k, "norm_feed_forward", middle)))
        return middle + affine(k, "contract", inner)

    for k in range(2):
        for i in range(6):
            near = candidates.nodes[k, i]
            seen = torch.cat([rows[k, near[[0, 0, 0, 1]] if i == 0 else near], centers[k]])
            assert torch.allclose(outputs[k, i], expected(k, rows[k, i], seen), atol=1e-9)
        for g in range(3):
            assert torch.allclose(moved[k, g], expected(k, centers[k, g], centers[k]), atol=1e-9)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_mini_batch_gives_the_rows_of_the_whole_graph(layers: int) -> None:
    graph = example_graph(nodes=240, clients=2)
    clients = [graph.client(k) for k in range(2)]
    candidates = find_candidates(clients, "ppr", 6, 0.15, derive(0))
    weights = model(GraphTransformer(layers, 8, 2, 8), 4, 3, 2)
    rows = torch.randn(2, 120, 8, generator=derive(1), dtype=torch.float64)
    centers = torch.randn(2, 3, 8, generator=derive(2), dtype=torch.float64)
    everything = draw_field(candidates, None, torch.ones(2, 120, dtype=torch.bool), layers, 3, None)
    batch = torch.stack([torch.randperm(120, generator=derive(3, k))[:5] for k in range(2)])
    part = draw_field(candidates, batch, torch.ones(2, 5, dtype=torch.bool), layers, 3, None)
    network = GraphTransformer(layers, 8, 2, 8)
    whole = network.logits(weights, rows, everything.layers, centers, NONE)
    some = network.logits(weights, rows, part.layers, centers, NONE)
    assert torch.allclose(some, whole.gather(1, batch.unsqueeze(2).expand(-1, -1, 3)), atol=1e-9)
    short = trim([part, everything])
    assert torch.allclose(network.logits(weights, rows, short[0].layers, centers, NONE), some, atol=1e-9)
    assert layers == 1 or short[0].layers[0].neighbors.shape[1] < part.layers[0].neighbors.shape[1]
    if layers > 1:
        assert part.layers[0].neighbors.shape[1] < 120, "the first layer must be computed where it is needed only"
    assert part.reached.sum(1).le(20).all() and part.reached.gather(1, batch).all()


def test_all_pairs_give_the_same_attention_as_gathered_neighbors() -> None:
    """Both ways on repeated neighbours and on weighted, padded ones."""
    rng = derive(0, "pairs")
    query, key_value = torch.randn(2, 9, 2, 4, generator=rng), torch.randn(2, 9, 16, generator=rng)
    far = torch.randn(2, 3, 2, 4, generator=rng)
    neighbors, logs = torch.randint(9, (2, 9, 5), generator=rng), torch.randn(2, 9, 5, generator=rng)
    logs[:, :, 3:] = -math.inf
    for weighted in (None, logs):
        where = Neighborhood(None, neighbors, weighted)
        assert graph_transformer.PAIR_COST * 9 * 2 < 5 * 16, "few enough for all pairs"
        pairs = graph_transformer._attend(query, key_value, where, far, far)
        wide = torch.cat([key_value, torch.randn(2, 40, 16, generator=rng)], 1)  # further rows that nobody attends to
        assert torch.allclose(graph_transformer._attend(query, wide, where, far, far), pairs, atol=1e-5)
    assert graph_transformer.row_blocks(10, 3 * graph_transformer.NUMBERS_AT_ONCE // 10) == [
        slice(0, 3),
        slice(3, 6),
        slice(6, 9),
        slice(9, 10),
    ]


def test_attention_memory_is_linear_in_the_nodes() -> None:
    """What autograd keeps of a step: n (n_s + n_g) numbers and what no attention changes, where all pairs would be
    n^2."""

    def kept(nodes: int, near: int = 16, far: int = 10) -> int:
        candidates = Candidates(torch.zeros(1, nodes, near, dtype=torch.long), torch.ones(1, nodes, near))
        weights = {n: w.requires_grad_() for n, w in model(GraphTransformer(1, 16, 2, 16), 4, 3, 1).items()}
        field = draw_field(candidates, None, torch.ones(1, nodes, dtype=torch.bool), 1, near, None)
        total = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        rows, centers = torch.randn(1, nodes, 16, dtype=torch.float64), torch.randn(1, far, 16, dtype=torch.float64)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            hybrid_layer(weights, 0, 2, rows, field.layers[0], centers, NONE)
        return total

    assert kept(4000) == pytest.approx(2 * kept(2000), rel=0.02)
    least = kept(2000, 1, 1)
    for near, far in ((16, 1), (1, 16), (16, 10)):
        once, twice = (kept(2000, 1 + times * near, 1 + times * far) - least for times in (1, 2))
        assert twice == pytest.approx(2 * once, rel=0.05), (near, far)


def test_shapes_are_checked() -> None:
    with pytest.raises(FglauditError, match="multiple of heads"):
        GraphTransformer(2, 10, 4, 8)
    with pytest.raises(FglauditError, match="layers >= 1"):
        GraphTransformer(0, 8, 4, 8)


def test_sage_averages_over_neighbors() -> None:
    graph = example_graph(nodes=40, clients=2)
    clients = [graph.client(k) for k in range(2)]
    candidates = find_candidates(clients, "neighbors", 20, 1.0, derive(0))
    network = Sage(2, 6)
    layout = network.layout(24, 3)
    weights = unflatten(torch.stack([initial_model(layout, derive(0, k)) for k in range(2)]).double(), layout)
    field = draw_field(candidates, None, torch.ones(2, 20, dtype=torch.bool), 2, 20, None)
    x = torch.stack([client.x for client in clients]).double()
    outputs = network.logits(weights, x @ weights["input.weight"], field.layers, x[:, :0], NONE)
    for k, client in enumerate(clients):
        mean = torch.zeros(20, 20, dtype=torch.float64)
        mean[client.edge_index[0], client.edge_index[1]] = 1
        mean += torch.diag((mean.sum(1) == 0).double())
        mean /= mean.sum(1, keepdim=True)
        first, second = weights["input.weight"][k], weights["layers.1.weight"][k]
        hidden = (x[k] @ first[:, :6] + mean @ x[k] @ first[:, 6:]).relu()
        assert torch.allclose(outputs[k], hidden @ second[:, :3] + mean @ hidden @ second[:, 3:], atol=1e-6)
