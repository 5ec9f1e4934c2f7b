"""Per-example gradients of many clients at once: their sum is the ordinary gradient, and at one client they are
Opacus's."""

from __future__ import annotations

import sys

import pytest
import torch
from opacus_reference import opacus_gradients
from torch import Tensor, nn
from torch.nn import functional

from fglaudit.errors import FglauditError
from fglaudit.federated.example_gradients import example_gradients, private_mean
from fglaudit.federated.node_clients import Rows
from fglaudit.federated.perceptron_steps import LocalSteps
from fglaudit.federated.problem import Problem, pooled
from fglaudit.nn import gcn
from fglaudit.nn.gcn import Field, logits, loss, losses
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import gcn_layout, glorot, unflatten
from fglaudit.testing import CPU, example_graph

GRAPH = example_graph()
LAYOUT = gcn_layout(GRAPH.num_features, 8, GRAPH.num_classes, 2)


def models(clients: int, seed: int = 0) -> Tensor:
    return torch.stack([glorot(LAYOUT, torch.Generator().manual_seed(seed + k)) for k in range(clients)])


def training_field(*, one_client: bool = False) -> Field:
    clients = [pooled(GRAPH)] if one_client else [GRAPH.client(k) for k in range(3)]
    problem = Problem.local(clients, GRAPH.degrees(), CPU)
    return problem.fields(problem.own_sums(GRAPH.x, 2), 2)[0]


def gcn_gradients(field: Field, weights: Tensor) -> Tensor:
    return example_gradients(lambda v: losses(field, logits(field, unflatten(v, LAYOUT))) * field.mask, weights)


@pytest.mark.parametrize("sparse_below", [0.0, 2.0])
def test_they_add_up_to_the_gradient_of_the_sum(sparse_below: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcn, "SPARSE_BELOW", sparse_below)
    field, weights = training_field(), models(3)
    assert isinstance(field.inputs, SparseMatrix) is (sparse_below > 1)
    leaf = weights.clone().requires_grad_()
    loss(field, logits(field, unflatten(leaf, LAYOUT))).backward()  # type: ignore[no-untyped-call]
    found = gcn_gradients(field, weights)
    assert found.shape == (field.mask.shape[1], 3, weights.shape[1])
    assert leaf.grad is not None
    torch.testing.assert_close(found.sum(0) / field.counts.unsqueeze(1), leaf.grad)
    assert bool((found.transpose(0, 1)[~field.mask] == 0).all())
    plain = private_mean(
        lambda v: losses(field, logits(field, unflatten(v, LAYOUT))), weights, field.mask, lambda each: each.sum(0)
    )
    torch.testing.assert_close(plain, leaf.grad)


def test_each_is_the_gradient_of_one_loss() -> None:
    field, weights = training_field(), models(3)
    found = gcn_gradients(field, weights)
    for example in range(field.mask.shape[1]):
        leaf = weights.clone().requires_grad_()
        (losses(field, logits(field, unflatten(leaf, LAYOUT))) * field.mask)[:, example].sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        torch.testing.assert_close(found[example], leaf.grad)


def test_private_steps_of_perceptrons_without_noise_are_the_fast_ones() -> None:
    rng = torch.Generator().manual_seed(1)
    rows = Rows(
        torch.arange(4),
        torch.randn(4, 5, GRAPH.num_features, generator=rng),
        functional.one_hot(torch.randint(3, (4, 5), generator=rng), 3).float(),
        torch.tensor([[True] * 5, [True] * 5, [True, True, False, False, False], [True] * 5]),
    )
    start = models(4)
    for batch in (0, 3):
        steps = LocalSteps(4, 0.1, batch)
        first, second = unflatten(start, LAYOUT).values()
        fast = steps.run(rows, first, second, torch.ones(4), torch.zeros(4, 3), None, torch.Generator().manual_seed(2))
        private = steps.run_private(rows, start, LAYOUT, lambda g: g.sum(0), torch.Generator().manual_seed(2))
        torch.testing.assert_close(torch.cat([part.flatten(1) for part in fast], 1), private)


class _TwoLayerGcn(nn.Module):
    """The GCN of one client where every example is a target with the rows that it may read."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        for name, weight in zip(("first", "second"), unflatten(weights, LAYOUT).values(), strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[2], bias=False)
            layer.weight.data = weight[0].T.clone()
            self.add_module(name, layer)

    def forward(self, sums: Tensor, shares: Tensor) -> Tensor:
        hidden = self.get_submodule("first")(sums).relu()
        outputs: Tensor = torch.einsum("br,brc->bc", shares, self.get_submodule("second")(hidden))
        return outputs


def test_at_one_client_they_are_those_of_opacus() -> None:
    pytest.importorskip("opacus", reason="the comparison needs Opacus: pip install 'fglaudit[dev]'")
    field, weights = training_field(one_client=True), models(1)
    assert isinstance(field.inputs, Tensor | SparseMatrix)
    inputs = field.inputs if isinstance(field.inputs, Tensor) else field.inputs.forward.to_dense().unsqueeze(0)
    targets = int(field.mask.sum().item())
    sums = inputs.expand(targets, -1, -1)
    shares = field.adjacency[0].forward.to_dense()
    reference = opacus_gradients(_TwoLayerGcn(weights), (sums, shares), field.labels[0, :targets])
    found = unflatten(gcn_gradients(field, weights)[:, 0], LAYOUT)
    for name, part in zip(("first", "second"), found.values(), strict=True):
        torch.testing.assert_close(part, reference[f"{name}.weight"].transpose(1, 2))


def test_a_layer_that_opacus_cannot_handle_is_named() -> None:
    pytest.importorskip("opacus", reason="the comparison needs Opacus: pip install 'fglaudit[dev]'")
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(FglauditError, match=r"1 \(BatchNorm1d\).*LayerNorm"):
        opacus_gradients(module, (torch.randn(5, 4),), torch.zeros(5, dtype=torch.long))


def test_without_opacus_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.grad_sample", None)
    with pytest.raises(FglauditError, match=r"pip install 'fglaudit\[dev\]'"):
        opacus_gradients(nn.Linear(2, 2), (torch.randn(1, 2),), torch.zeros(1, dtype=torch.long))
