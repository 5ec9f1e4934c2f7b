"""Noise of the stated distribution that depends on itself: it is noticed, and honest noise is not accused."""

from __future__ import annotations

import pytest
import torch

from bench.redteam.dependent_noise import HONEST, KINDS, UNSEEN, Dependent
from fglaudit.facts.residuals import Shape, Spending
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record_training
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.wire.observing.alike_rows import alike_rows
from fglaudit.wire.observing.dependent_draws import dependent_draws
from fglaudit.wire.observing.rotated_noise import alike


def found(kind: str, seed: int, features: int = 24) -> list[str]:
    graph = example_graph(nodes=120, features=features)
    _, truth = record_training(graph, FedGCN(hops=1, rounds=1), Dependent(kind), seed=seed)
    return [fact.why for fact in truth.unstated]


@pytest.mark.parametrize("kind", KINDS)
def test_noise_that_depends_on_itself_is_unstated(kind: str) -> None:
    assert found(kind, 0)


@pytest.mark.parametrize("kind", UNSEEN)
def test_noise_of_another_library_is_not_believed_unseen(kind: str) -> None:
    assert all("another library" in why for why in found(kind, 0))
    assert found(kind, 0)


@pytest.mark.all_draws
@pytest.mark.parametrize("kind", ["one-direction", "own-directions", "no-sum"])
def test_directions_are_looked_at_where_messages_are_wide(kind: str) -> None:
    assert found(kind, 0, features=700)  # more than a message of the training has rows


@pytest.mark.parametrize("kind", HONEST)
def test_honest_noise_is_believed(kind: str) -> None:
    assert not any(found(kind, seed) for seed in range(3))


@pytest.mark.parametrize("name", ["gaussian", "laplace", "uniform"])
@pytest.mark.parametrize("size", [(16, 3, 400), (64, 40, 1), (64, 40, 8), (128, 9, 30)])
def test_independent_draws_pass_at_every_size(name: str, size: tuple[int, int, int]) -> None:
    shape = Shape.of(((name, 2.0),))
    assert shape is not None
    ids = torch.arange(size[1]) % 5
    for seed in range(4):
        u = torch.rand(size, generator=derive(seed, name), dtype=torch.float64)
        drawn = (
            2
            * {
                "gaussian": torch.special.ndtri(u),
                "laplace": -(u - 0.5).sign() * torch.log1p(-2 * (u - 0.5).abs()),
                "uniform": 2 * u - 1,
            }[name]
        )
        slack = torch.full_like(drawn, 1e-6)
        assert dependent_draws(drawn, slack, shape, Spending()) is None
        assert alike_rows(drawn[0], slack[0], shape, [ids], Spending()) is None


def test_turned_blocks_are_alike_and_independent_ones_are_not() -> None:
    for count, width in ((16, 200), (100, 6)):
        first, other = torch.randn(2, 5, count, width, generator=derive(0, "blocks", count), dtype=torch.float64)
        turn = torch.linalg.qr(torch.randn(width, width, generator=derive(0, "turn"), dtype=torch.float64))[0]
        assert float(alike(first, other).max()) < 14  # of 25 pairs
        assert float(alike(first, other @ turn).max()) < 14
        assert float(alike(first, first @ turn).diagonal().min()) > 23


def test_a_column_that_is_made_of_others_shows_where_rows_are_few() -> None:
    shape = Shape.of((("gaussian", 1.0),))
    assert shape is not None
    drawn = torch.randn(400, 2, 24, generator=derive(0, "bare"), dtype=torch.float64)
    drawn -= drawn.mean(2, keepdim=True)
    assert dependent_draws(drawn, torch.full_like(drawn, 1e-6), shape, Spending()) is not None
