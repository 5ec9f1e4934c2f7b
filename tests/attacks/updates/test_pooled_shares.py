"""Label distributions read twice: what clients have in common is kept where their readings say no more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fglaudit
from fglaudit.attacks.updates.pooled_shares import pooled_shares
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.rng import derive
from fglaudit.suite.entries import dataset_spec


def _apart(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().sum(1).mean() / 2)


@pytest.mark.parametrize("clients", [3, 10])
def test_draws_from_one_distribution_are_pooled(clients: int) -> None:
    truth = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.double)
    rng = derive(0, "draws")
    first, second = (
        torch.stack(
            [torch.bincount(torch.multinomial(truth[0], 25, True, generator=rng), minlength=4) for _ in range(clients)]
        )
        / 25
        for _ in range(2)
    )
    pooled = pooled_shares(first.double(), second.double(), 30 * truth[0])
    assert _apart(pooled, truth) < 0.6 * _apart((first + second) / 2, truth)


def test_clients_that_differ_stay_apart() -> None:
    truth = torch.full((4, 4), 0.05, dtype=torch.double) + 0.8 * torch.eye(4, dtype=torch.double)
    assert _apart(pooled_shares(truth, truth, torch.zeros(4)), truth) < 0.02


def test_even_clients_of_fedgt_are_not_told_apart_by_chance() -> None:
    """The overlap was 0.745: training nodes are few, and whatever was drawn among them was believed of all nodes."""
    drawn = {"nodes": 200, "edges": 400, "classes": 4, "dimensions": 200, "ones_per_row": 10}
    report = fglaudit.audit(
        dataset_spec({"name": "csbm", "csbm": drawn, "split": "random", "train": 0.2, "val": 0.4, "test": 0.4}).load(),
        protocol={"name": "fedgt", "rounds": 5},
        partition=PartitionSpec("dirichlet", 3, 10000.0),
        observers=[ObserverSpec(("server",), auxiliary=0.1)],
        attacks=["update-labels"],
        split="random",
        empirical=False,
    )
    rows: Any = report.findings.itertuples()
    (found,) = rows
    assert found.status == "ok" and found.value > 0.82, found.reason
