"""Entries between public bounds: their expectation, by hand and by draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fglaudit
from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.attacks.latents.truncated_means import expected_entries, truncated_mean
from fglaudit.partition import PartitionSpec
from fglaudit.rng import derive


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, torch.inf), (-torch.inf, -1.0), (-0.5, 2.0), (1.0, 1.5), (-torch.inf, torch.inf)]
)
def test_the_mean_of_a_truncated_normal_is_that_of_draws(low: float, high: float) -> None:
    draws = 0.5 + 2 * torch.randn(400_000, generator=derive(0, "draws"), dtype=torch.double)
    kept = draws[(draws >= low) & (draws <= high)].mean()
    bounds = torch.tensor([low, high], dtype=torch.double)
    mean = truncated_mean(bounds.new_tensor(0.5), bounds.new_tensor(2.0), *bounds)
    assert float(mean) == pytest.approx(float(kept), abs=0.01)


def test_far_in_the_tail_the_mean_is_just_beyond_the_bound() -> None:
    zero, one = torch.zeros(2, dtype=torch.double), torch.ones(2, dtype=torch.double)
    low = torch.tensor([50.0, -torch.inf], dtype=torch.double)
    high = torch.tensor([torch.inf, -50.0], dtype=torch.double)
    torch.testing.assert_close(
        truncated_mean(zero, one, low, high), torch.tensor([50.02, -50.02]).double(), rtol=1e-4, atol=0
    )


def test_an_entry_that_may_be_zero_is_that_where_entries_mostly_are() -> None:
    """Zeros lie between bounds on both sides; where hardly any does, one open side is a sign."""
    low, high = torch.full((1, 40), -0.01).double(), torch.full((1, 40), 0.01).double()
    high[0, 0] = torch.inf
    told, least = torch.ones(1, 40, dtype=torch.bool), torch.zeros(1, 1).double()
    assert float(expected_entries(low, high, least, told, 1.0)[0, 0]) < 0.1
    low[0, 1:], high[0, 1:] = 0.01, torch.inf
    assert float(expected_entries(low, high, least, told, 1.0)[0, 0]) > 0.7


def test_no_entry_is_the_best_row_where_entries_are_improbable() -> None:
    chance = torch.tensor([[0.01, 0.02, 0.0], [0.5, 0.4, 0.3], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert best_f1_bits(chance).sum(1).tolist() == [0, 3, 0, 1]


def _report(x: np.ndarray[Any, Any]) -> Any:
    nodes = np.arange(len(x))
    edges = np.stack([np.r_[nodes, (nodes + 1) % len(x)], np.r_[(nodes + 1) % len(x), nodes]])
    report = fglaudit.audit(
        {"x": x.astype(np.float32), "y": nodes % 3, "edge_index": edges},
        protocol={"name": "cnfgnn", "rounds": 2, "hidden": 4},
        partition=PartitionSpec("per-node"),
        observers=["server"],
        attacks=["weight-difference"],
        empirical=False,
    )
    (found,) = report.findings.itertuples()
    return found


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_negative_rows_are_read_from_steps_of_adam_better_than_guessed(scale: float) -> None:
    """Entries whose signs were all but certain were taken for zero: a cosine of 0.78 beside 0.83."""
    rng = np.random.default_rng(0)
    found = _report(-np.abs(rng.normal(size=(36, 12))) * scale)
    assert found.status == "ok" and found.value > found.control, found.reason


def test_a_row_of_zeros_is_proven_to_be_one() -> None:
    """The best row for the F1 had one entry at least, and was called proven."""
    rng = np.random.default_rng(0)
    x = rng.random((36, 12)) < 0.3
    x[::2] = False
    found = _report(x)
    assert found.status == "ok" and found.identifiable_rate > 0.2, found.reason
