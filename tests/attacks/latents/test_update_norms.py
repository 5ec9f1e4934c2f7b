"""Norms from update dynamics where rows are odd: without entries, or too large for the training to stay finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fglaudit
from fglaudit.partition import PartitionSpec

_NODES = 30


def _ring(x: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    ring = np.arange(_NODES)
    edges = np.stack([np.r_[ring, (ring + 1) % _NODES], np.r_[(ring + 1) % _NODES, ring]])
    return {"x": x.astype(np.float32), "y": ring % 3, "edge_index": edges}


def _finding(x: np.ndarray[Any, Any], optimizer: str, rounds: int) -> Any:
    norms = "update-l1-norms" if optimizer == "adam" else "update-squared-norms"
    report = fglaudit.audit(
        _ring(x),
        protocol={"name": "nfedgnn", "rounds": rounds, "hidden": 8, "optimizer": optimizer},
        partition=PartitionSpec("per-node"),
        observers=["server"],
        attacks=[norms],
        empirical=False,
    )
    (found,) = report.findings.itertuples()
    return found


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("normalised", [False, True])
def test_rows_without_entries_have_norm_zero(optimizer: str, normalised: bool) -> None:
    """Their norms came out as 1e-13, beside which the guess zero is right for all of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(_NODES, 24))
    if normalised:
        bits = rng.random((_NODES, 24)) < 0.3
        x = bits / bits.sum(1, keepdims=True).clip(1)
    x[np.arange(_NODES) % 3 != 0] = 0
    found = _finding(x, optimizer, 2)
    assert found.control == pytest.approx(2 / 3)
    assert found.status == "ok" and found.value == 1.0, found.reason


def test_a_training_that_diverges_is_read_while_it_is_finite() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(_NODES, 24)) * 10.0 ** rng.integers(-3, 3, size=(_NODES, 1))
    found = _finding(x, "sgd", 20)
    assert found.status == "ok" and found.value == 1.0, found.reason
