"""Unrolled local steps against torch's own optimizers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bench.updates.optimisation import ADAM_EPSILON, Layers, unrolled
from fglaudit.rng import derive
from fglaudit.structure import Training


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_unrolled_steps_are_those_of_torch(optimizer: str) -> None:
    draw = derive(0, "unrolled")
    rows, labels = torch.rand(5, 9, generator=draw), torch.tensor([0, 2, 1, 1, 0])
    weights = Layers(torch.randn(9, 6, generator=draw), torch.randn(6, 3, generator=draw))
    stated = Training(optimizer, 0.05, weight_decay=1e-2, local_steps=3)
    trained = [weight.clone().requires_grad_() for weight in weights]
    kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    steps = kind(trained, lr=0.05, weight_decay=1e-2)
    for _ in range(3):
        steps.zero_grad()
        loss = functional.cross_entropy((rows @ trained[0]).relu() @ trained[1], labels)
        loss.backward()  # type: ignore[no-untyped-call]
        steps.step()
    found = unrolled(weights, rows, functional.one_hot(labels, 3).float(), stated, ADAM_EPSILON)
    for change, weight, after in zip(found, weights, trained, strict=True):
        torch.testing.assert_close(change, after.detach() - weight, rtol=1e-3, atol=1e-5)
