"""FedGAT's server steps on the mean of its clients' gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fedgat_runs import CPU, SMALL, mixed_graph, quiet

from fglaudit.errors import FglauditError
from fglaudit.nn.weights import flatten, unflatten
from fglaudit.payloads import ModelUpdate
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.rng import derive

STEPS: dict[str, Any] = SMALL | {
    "optimizer": "sgd", "learning_rate": 0.1, "bounds": "none", "weight_decay": 0.0, "remote": "matrices",
}  # fmt: skip


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_one_step_a_round_is_adam_on_the_mean_of_the_losses(decay: float) -> None:
    """Torch's Adam on clients' mean loss, with the L2 penalty that clients have."""
    graph = mixed_graph()
    protocol = FedGAT(server_optimizer="adam", server_learning_rate=0.05, **STEPS | {"weight_decay": decay})
    training, initial, rest = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
    trained = training.run(initial, rest, federated=True)
    again, _, _ = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
    model = initial.clone().requires_grad_()
    adam = torch.optim.Adam([model], lr=0.05, weight_decay=decay)
    clients = graph.num_clients
    again._predict(0, initial.expand(clients, -1))  # nothing is exchanged, and says so
    senders = int((again.problem.train.field.counts > 0).sum())
    for _ in range(protocol.rounds):
        adam.zero_grad()
        loss = again.loss(unflatten(model.unsqueeze(0).expand(clients, -1), again.layout))
        (loss / senders).backward()  # type: ignore[no-untyped-call]
        adam.step()
    found = flatten({name: weight.unsqueeze(0) for name, weight in trained.weights.items()})[0]
    assert torch.allclose(found, model.detach(), rtol=1e-5, atol=1e-7)
    assert not torch.allclose(found, initial, atol=1e-3)


def test_more_local_steps_count_as_their_mean() -> None:
    graph, moved = mixed_graph(), []
    for steps in (1, 4):
        fields = STEPS | {"local_steps": steps, "rounds": 1, "learning_rate": 1e-4}
        protocol = FedGAT(server_optimizer="adam", **fields)
        training, initial, rest = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
        weights = training.run(initial, rest, federated=True).weights
        moved.append(flatten({name: w.unsqueeze(0) for name, w in weights.items()})[0] - initial)
    one, four = moved
    assert torch.allclose(one, four, rtol=1e-2, atol=1e-4)


def test_what_clients_receive_is_no_mean_and_nobody_can_sum_blindly() -> None:
    graph, stepping = mixed_graph(), FedGAT(server_optimizer="adam", **STEPS)
    assert FedGAT(**STEPS).uploads(graph).mean and not stepping.uploads(graph).mean
    assert ModelUpdate in FedGAT(**STEPS).aggregates(graph) and ModelUpdate not in stepping.aggregates(graph)
    assert "Adam" in stepping.readers()[ModelUpdate]
    with pytest.raises(FglauditError, match="optimizer: sgd"):
        FedGAT(server_optimizer="adam", **STEPS | {"optimizer": "adam"})
