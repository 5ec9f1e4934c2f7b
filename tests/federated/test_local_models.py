"""Local training takes the steps of torch's own optimizers, bit for bit."""

from __future__ import annotations

import pytest
import torch

from fglaudit.federated.training import LocalModels, LocalSettings
from fglaudit.nn.gcn import Field, Propagation, build_field, logits, loss, needed_rows
from fglaudit.nn.weights import flatten, gcn_layout, unflatten


def field() -> Field:
    """Two clients of three nodes each in a row, all of them targets."""
    row = torch.tensor([0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5])
    column = torch.tensor([0, 1, 0, 1, 2, 1, 2, 3, 4, 3, 4, 5, 4, 5])
    graph = Propagation(row, column, torch.full((14,), 0.4), torch.tensor([0, 0, 0, 1, 1, 1]), 2)
    targets = torch.ones(6, dtype=torch.bool)
    inputs = torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    return build_field(graph, inputs, torch.arange(6), needed_rows(graph, targets, 2), labels)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_steps_are_those_of_torch(optimizer: str, decay: float) -> None:
    layout = gcn_layout(5, 4, 3, 2)
    vectors = torch.randn(2, 32, generator=torch.Generator().manual_seed(1))
    models = LocalModels(vectors, layout, field(), LocalSettings(optimizer, 0.3, decay, 0.5), torch.Generator())
    weights = {name: w.clone().requires_grad_() for name, w in unflatten(vectors, layout).items()}
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    reference, rng = kind(weights.values(), lr=0.3, weight_decay=decay), torch.Generator()
    models.step(3)
    for _ in range(3):
        reference.zero_grad()
        loss(field(), logits(field(), weights, 0.5, rng)).backward()  # type: ignore[no-untyped-call]
        reference.step()
    assert not torch.equal(models.vectors(), vectors)
    assert torch.equal(models.vectors(), flatten({name: w.detach() for name, w in weights.items()}))
