"""The tensor code of GFL-APPNP against autograd, plain loops and closed forms."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fglaudit.errors import FglauditError
from fglaudit.federated.node_clients import NodeClients, Rows
from fglaudit.federated.perceptron_steps import LocalSteps
from fglaudit.graph import Graph, canonical_edges, federate
from fglaudit.nn import propagation
from fglaudit.nn.propagation import personalised_propagation, propagator
from fglaudit.protocols.gfl_appnp.jacobians import FactorPropagation, FullJacobians, Hidden
from fglaudit.rng import derive

N, S, F, H, C = 5, 3, 4, 6, 3
RNG = derive(0, "gfl-appnp-nn")
X = torch.randn(N, S, F, generator=RNG, dtype=torch.float64)
W1 = torch.randn(F, H, generator=RNG, dtype=torch.float64)
W2 = torch.randn(H, C, generator=RNG, dtype=torch.float64)
FLAT = torch.cat([W1.flatten(), W2.flatten()])


def encode(vector: Tensor, x: Tensor) -> Tensor:
    """The encoder written once more, from one vector of weights."""
    first, second = vector[: F * H].view(F, H), vector[F * H :].view(H, C)
    return torch.relu(x @ first) @ second


def test_propagation_is_appnps_iteration() -> None:
    edges = canonical_edges(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), N)
    h = torch.randn(N, C, generator=derive(1, "h"))
    closed = torch.eye(N)
    closed[edges[0], edges[1]] = 1
    degree = closed.sum(1)
    z = h
    for _ in range(4):
        neighbours = torch.stack(
            [
                torch.stack([z[j] * closed[i, j] / (degree[i] * degree[j]).sqrt() for j in range(N)]).sum(0)
                for i in range(N)
            ]
        )
        z = 0.9 * neighbours + 0.1 * h
    torch.testing.assert_close(personalised_propagation(edges, N, 0.1, 4) @ h, z)


def test_truncated_propagation_is_the_sum_cut_off() -> None:
    edges = canonical_edges(torch.randint(N, (2, 20), generator=derive(3)), N)
    closed = torch.eye(N)
    closed[edges[0], edges[1]] = 1
    step = closed / (closed.sum(1, keepdim=True) * closed.sum(1)).sqrt()
    cut = sum((0.1 * 0.9**power * torch.linalg.matrix_power(step, power) for power in range(5)), torch.zeros(N, N))
    found = personalised_propagation(edges, N, 0.1, 4, truncated=True)
    torch.testing.assert_close(found, cut)
    whole = personalised_propagation(edges, N, 0.1, 4)
    torch.testing.assert_close(whole - found, 0.9**5 * torch.linalg.matrix_power(step, 4))


@pytest.mark.parametrize("truncated", [False, True])
def test_propagation_step_by_step_equals_the_matrix(truncated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = canonical_edges(torch.randint(N, (2, 20), generator=derive(3)), N)
    rows = torch.randn(N, 3, generator=derive(4)).requires_grad_()
    whole = propagator(edges, N, 0.1, 6, truncated=truncated)(rows)
    monkeypatch.setattr(propagation, "DENSE_UP_TO", 0)
    steps = propagator(edges, N, 0.1, 6, truncated=truncated)(rows)
    torch.testing.assert_close(steps, whole)
    for found, expected in zip(*(torch.autograd.grad(out.square().sum(), rows) for out in (steps, whole)), strict=True):
        torch.testing.assert_close(found, expected)


def test_propagation_on_two_nodes_by_hand() -> None:
    # P has all entries 1/2 and P^2 = P, so A = alpha I + (1 - alpha) P for every M >= 1.
    edges = torch.tensor([[0, 1], [1, 0]])
    torch.testing.assert_close(personalised_propagation(edges, 2, 0.1, 10), torch.tensor([[0.55, 0.45], [0.45, 0.55]]))


@pytest.mark.parametrize("models", [1, N])
def test_jacobians_are_those_of_autograd(models: int) -> None:
    second = W2.expand(models, -1, -1) * torch.linspace(1, 2, models, dtype=torch.float64).view(-1, 1, 1)
    hidden = Hidden.of(X, W1.expand(models, -1, -1), second)
    full = hidden.jacobians(X, 1, N)
    for j in range(1, N):
        own = torch.cat([W1.flatten(), second[j if models > 1 else 0].flatten()])
        expected = torch.func.jacrev(lambda w, j=j: encode(w, X[j]).mean(0))(own)
        torch.testing.assert_close(full[j - 1], expected)
        torch.testing.assert_close(hidden.mean[j], encode(own, X[j]).mean(0))


@pytest.mark.parametrize("share", [0.0, 0.95])
@pytest.mark.parametrize("samples", [1, S])
def test_factors_give_the_propagated_jacobians(samples: int, share: float) -> None:
    x = X[:, :samples] * (torch.rand(N, samples, F, generator=derive(2, "sparse")) >= share)
    weights = torch.rand(2, N, generator=derive(3, "weights"), dtype=torch.float64)
    hidden = Hidden.of(x, W1.unsqueeze(0), W2.unsqueeze(0))
    factored = FactorPropagation(weights, x)(hidden)
    expected = torch.einsum("tn,ncd->tcd", weights, hidden.jacobians(x, 0, N))
    torch.testing.assert_close(factored.full(), expected)
    full = FullJacobians.of(expected, F, H)
    residuals = torch.randn(2, C, generator=derive(4, "r"), dtype=torch.float64)
    rows = torch.randn(2, 7, F, generator=derive(5, "x"), dtype=torch.float64)
    for name, argument in (("against", rows), ("first", residuals), ("second", residuals)):
        torch.testing.assert_close(getattr(factored, name)(argument), getattr(full, name)(argument))
    direct = torch.einsum("tc,tcd->td", residuals, expected)
    torch.testing.assert_close(
        torch.cat([full.first(residuals).flatten(1), full.second(residuals).flatten(1)], 1), direct
    )


def test_local_steps_are_the_papers_one_client_at_a_time() -> None:
    """Algorithm 1, with autograd for the own sample and the received Jacobian added to it, step by step."""
    clients, rate, steps = 2, 0.3, 4
    x, labels = X[:clients], torch.tensor([[0, 1, 2], [2, 2, 0]])
    present = torch.tensor([[True, True, True], [True, True, False]])
    scale = torch.tensor([0.6, 0.3], dtype=torch.float64)
    offset = torch.randn(clients, C, generator=derive(6, "C"), dtype=torch.float64)
    received = torch.randn(clients, C, len(FLAT), generator=derive(7, "dC"), dtype=torch.float64)
    rows = Rows(torch.arange(clients), x, torch.nn.functional.one_hot(labels, C).double(), present)
    first, second = LocalSteps(steps, rate).run(
        rows,
        W1.expand(clients, -1, -1),
        W2.expand(clients, -1, -1),
        scale,
        offset,
        FullJacobians.of(received, F, H),
        derive(0, "batches"),
    )
    for k in range(clients):
        w, used = FLAT.clone(), present[k]
        for _ in range(steps):
            leaf = w.clone().requires_grad_()
            z = scale[k] * encode(leaf, x[k][used]) + offset[k]
            (own,) = torch.autograd.grad(cross_entropy(z, labels[k][used]), leaf)
            residual = (z.detach().softmax(1) - rows.target[k][used]).mean(0)
            w = w - rate * (own + residual @ received[k])
        torch.testing.assert_close(torch.cat([first[k].flatten(), second[k].flatten()]), w)


def test_batches_are_drawn_without_replacement_from_the_rows_present() -> None:
    present = torch.tensor([[True] * 6, [True, True, False, False, False, False]])
    weights = LocalSteps(50, 0.1, batch_size=3).batches(present, derive(0, "batches"))
    assert weights.shape == (50, 2, 6)
    torch.testing.assert_close(weights.sum(2), torch.ones(50, 2))
    assert bool((((weights > 0).sum(2)) == torch.tensor([3, 2])).all())
    assert not bool(weights[:, ~present].any())
    assert bool((weights[:, 0].sum(0) > 0).all()), "every row has its turn"
    assert len(LocalSteps(50, 0.1).batches(present, derive(0, "batches"))) == 1


def test_training_rows_are_the_training_samples() -> None:
    x = torch.arange(24.0).view(3, 4, 2)
    y = torch.tensor([[0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 1, -1]])
    train = torch.tensor([[False, True, False, True], [False] * 4, [False, False, False, True]])
    train[2, 0] = True
    graph = federate(
        Graph(x, y, torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), "three"),
        list(torch.arange(3).view(3, 1)),
        train,
        ~train,
        train,
    )
    rows = NodeClients.of([graph.client(k) for k in range(3)], torch.device("cpu")).training_rows(2)
    assert rows.clients.tolist() == [0, 2]
    assert rows.present.tolist() == [[True, True], [True, False]], "an unlabelled sample does not train"
    assert rows.x[0].tolist() == [[2.0, 3.0], [6.0, 7.0]] and rows.x[1, 0].tolist() == [16.0, 17.0]
    assert rows.target[:, 0].tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("change", [{"steps": 0}, {"rate": -1.0}, {"batch_size": -1}])
def test_local_steps_refuse_what_means_nothing(change: dict[str, Any]) -> None:
    with pytest.raises(FglauditError, match="got"):
        dataclasses.replace(LocalSteps(1, 0.1), **change)
