"""The batched building blocks against dense references."""

from __future__ import annotations

import torch

from fglaudit.federated.fedavg import average, sample_clients
from fglaudit.federated.neighbor_sums import weighted_sums
from fglaudit.federated.training import accuracies
from fglaudit.nn.gcn import Field, Propagation, build_field, logits, needed_rows
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import flatten, gcn_layout, glorot, unflatten
from fglaudit.rng import derive


def test_sparse_product_and_gradient_equal_dense() -> None:
    rng = derive(0)
    dense = torch.randn(5, 7, generator=rng) * (torch.rand(5, 7, generator=rng) < 0.4)
    rows, columns = dense.nonzero(as_tuple=True)
    order = torch.randperm(len(rows), generator=rng)
    rows, columns = rows[order], columns[order]
    matrix = SparseMatrix.from_entries(rows, columns, dense[rows, columns], (5, 7))
    x, reference = (torch.randn(7, 3, generator=derive(1)).requires_grad_() for _ in range(2))
    weight = torch.randn(5, 3, generator=rng)
    ((matrix @ x) * weight).sum().backward()  # type: ignore[no-untyped-call]
    ((dense @ reference) * weight).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(matrix @ x, dense @ reference, atol=1e-6)
    assert x.grad is not None and reference.grad is not None
    assert torch.allclose(x.grad, reference.grad, atol=1e-6)


def test_weighted_sums_round_once() -> None:
    x = torch.tensor([[1.0], [1e8], [-1e8]], dtype=torch.float64)
    start, columns = torch.tensor([0, 3, 3, 4]), torch.tensor([1, 0, 2, 0])
    sums = weighted_sums(start, columns, torch.ones(4, dtype=torch.float64), x)
    assert sums.tolist() == [[1.0], [0.0], [1.0]]  # a float32 accumulator would lose the 1


def test_flatten_and_unflatten_are_inverse() -> None:
    layout = gcn_layout(5, 4, 3, 3)
    vectors = torch.stack([glorot(layout, derive(k)) for k in range(2)])
    weights = unflatten(vectors, layout)
    assert [tuple(w.shape) for w in weights.values()] == [(2, 5, 4), (2, 4, 4), (2, 4, 3)]
    assert torch.equal(flatten(weights), vectors)


def two_clients() -> tuple[Propagation, torch.Tensor]:
    """Client 0 has rows 0-2 (a path), client 1 rows 3-4 (an edge), with self-loops and unequal weights."""
    row = torch.tensor([0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4])
    column = torch.tensor([0, 1, 0, 1, 2, 1, 2, 3, 4, 3, 4])
    weight = torch.arange(1, 12) / 10
    return Propagation(row, column, weight, torch.tensor([0, 0, 0, 1, 1]), 2), weight


def dense_logits(graph: Propagation, inputs: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    a = torch.zeros(5, 5)
    a[graph.row, graph.column] = graph.weight
    hidden = torch.stack([inputs[i] @ weights[0][graph.client[i]] for i in range(5)])
    for weight in weights[1:]:
        hidden = a @ torch.stack([hidden[i].relu() @ weight[graph.client[i]] for i in range(5)])
    return hidden


def field(graph: Propagation, inputs: torch.Tensor, targets: torch.Tensor, layers: int) -> Field:
    return build_field(graph, inputs, torch.arange(5), needed_rows(graph, targets, layers), torch.arange(5) % 2)


def test_receptive_field_gives_the_logits_of_the_whole_graph() -> None:
    graph, _ = two_clients()
    targets = torch.tensor([True, False, False, False, True])
    sparse = torch.eye(5, 6)
    dense = torch.randn(5, 6, generator=derive(0))
    for layers in (1, 2, 3):
        layout = gcn_layout(6, 4, 2, layers)
        weights = unflatten(torch.stack([glorot(layout, derive(k)) for k in range(2)]), layout)
        for inputs in (sparse, dense):
            block = field(graph, inputs, targets, layers)
            assert isinstance(block.inputs, SparseMatrix) == (inputs is sparse)
            got = logits(block, weights)[block.mask]
            assert torch.allclose(got, dense_logits(graph, inputs, list(weights.values()))[targets], atol=1e-6)


def test_receptive_field_leaves_out_what_no_target_needs() -> None:
    graph, _ = two_clients()
    targets = torch.tensor([True, False, False, False, False])
    assert [mask.tolist() for mask in needed_rows(graph, targets, 2)] == [
        [True, True, False, False, False],
        [True, False, False, False, False],
    ]
    assert field(graph, torch.eye(5), targets, 2).rows == (2, 1)


def test_dropout_keeps_the_mean() -> None:
    graph, _ = two_clients()
    block = field(graph, torch.eye(5), torch.ones(5, dtype=torch.bool), 2)
    layout = gcn_layout(5, 64, 2, 2)
    weights = unflatten(torch.stack([glorot(layout, derive(k)) for k in range(2)]), layout)
    rng = derive(3)
    drawn = torch.stack([logits(block, weights, 0.5, rng) for _ in range(4000)])
    assert torch.allclose(drawn.mean(0), logits(block, weights), atol=0.03)
    assert float(drawn.std(0)[block.mask].min()) > 0.01


def test_average_and_sampling() -> None:
    vectors = torch.tensor([[0.0, 2.0], [4.0, 6.0]])
    assert average(vectors, torch.tensor([1.0, 1.0])).tolist() == [2.0, 4.0]
    assert average(vectors, torch.tensor([3.0, 1.0])).tolist() == [1.0, 3.0]
    eligible = torch.tensor([1, 4, 5, 9])
    assert torch.equal(sample_clients(eligible, 1.0, derive(0)), eligible)
    chosen = sample_clients(eligible, 0.5, derive(0))
    assert len(chosen) == 2 and bool(torch.isin(chosen, eligible).all()) and chosen[0] < chosen[1]
    assert len(sample_clients(eligible, 0.01, derive(0))) == 1


def test_accuracies() -> None:
    accuracy, everyone = accuracies([torch.tensor([1, 0, 3]), torch.tensor([2, 0, 0])], torch.tensor([2, 0, 4]))
    assert torch.equal(accuracy[:, [0, 2]], torch.tensor([[0.5, 0.75], [1.0, 0.0]], dtype=torch.float64))
    assert bool(accuracy[:, 1].isnan().all())
    assert torch.allclose(everyone, torch.tensor([4 / 6, 2 / 6], dtype=torch.float64))
