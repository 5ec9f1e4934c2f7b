"""Rows that repeat, hold nothing, or have one column: a guess gets what they give away, and no attack reads broken."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import fglaudit
from fglaudit.adversary.priors.prior_only import best_entry_count
from fglaudit.graph import FeatureKind
from fglaudit.partition import PartitionSpec
from fglaudit.quantities.rows.metrics import RELATIVE_TOLERANCE, exact, matched_exact

NODES = 60


def audited(x: Any, attacks: list[str], observers: list[str]) -> dict[tuple[str, str], Any]:
    edges = np.array(nx.gnm_random_graph(NODES, 110, seed=1).edges).T
    graph = {
        "x": x.astype(np.float32),
        "y": np.arange(NODES) % 3,
        "edge_index": np.concatenate([edges, edges[::-1]], 1),
    }
    settings = {"name": "fedgcn", "hops": 1, "rounds": 2}
    report = fglaudit.audit(graph, protocol=settings, clients=5, observers=observers, attacks=attacks, empirical=False)
    rows: Any = report.findings.itertuples()
    return {(row.observer, row.attack): row for row in rows}


def words() -> Any:
    return (np.random.default_rng(0).random((NODES, 12)) < 0.3).astype(float)


def test_empty_rows_are_no_achievement_and_break_no_attack() -> None:
    x = words()
    x[::2] = 0
    empty = float((x.sum(1) == 0).mean())
    rows = audited(x, ["server-partial-sums", "subset-sum", "maximum-a-posteriori"], ["server", "client:each"])
    assert {row.status for row in rows.values()} == {"ok"}
    server = rows["server", "server-partial-sums"]
    assert server.control == pytest.approx(empty) and server.advantage > 0.5
    assert rows["client:each", "subset-sum"].control > 0.35
    assert rows["client:each", "maximum-a-posteriori"].control > 0.35


def test_where_all_rows_are_empty_there_is_nothing_to_learn() -> None:
    row = audited(0 * words(), ["subset-sum"], ["client:each"])["client:each", "subset-sum"]
    assert row.status == "ok" and row.control == 1.0 and "uninformative" in row.reason


def test_a_guess_has_the_most_frequent_of_a_few_rows() -> None:
    x = words()[np.minimum(np.arange(NODES) % 5, 2)]  # the third of three rows is at three nodes of five
    row = audited(x, ["subset-sum"], ["client:each"])["client:each", "subset-sum"]
    assert row.control_exact_rate > 0.4


@pytest.mark.parametrize("sign", [1, -1])
def test_positive_numbers_alone_are_no_achievement(sign: int) -> None:
    """A guess of zeros had a cosine of 0, and what is read of noise of the same mean was ahead of it: broken."""
    x = sign * np.random.default_rng(0).integers(1, 9, (NODES, 12))
    row = audited(x, ["lone-parts"], ["server"])["server", "lone-parts"]
    assert row.status == "ok" and row.control > 0.8


def test_real_rows_of_zeros_are_no_wrong_proofs() -> None:
    x = np.random.default_rng(0).normal(size=(NODES, 12))
    x[::2] = 0
    rows = audited(x, ["row-space", "maximum-a-posteriori"], ["client:each"])
    assert {row.status for row in rows.values()} == {"ok"}
    assert all(row.identifiable_rate > 0 for row in rows.values())


def test_rows_that_rounding_drowns_are_not_called_proven() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(NODES, 12)) * np.exp(5 * rng.normal(size=(NODES, 1)))
    row = audited(x, ["maximum-a-posteriori"], ["client:each"])["client:each", "maximum-a-posteriori"]
    assert row.status == "ok", row.reason


def test_single_entries_say_nothing_of_levels_within_rows() -> None:
    assert FeatureKind.of(torch.tensor([[0.3], [1.2], [-2.0]])) is FeatureKind.REAL
    assert FeatureKind.of(torch.diag(torch.tensor([0.3, 1.2, 0.7]))) is FeatureKind.REAL
    assert FeatureKind.of(-torch.ones(3, 2)) is FeatureKind.REAL
    assert FeatureKind.of(0.5 * torch.eye(3)) is FeatureKind.SCALED_BINARY
    assert FeatureKind.of(torch.zeros(3, 1)) is FeatureKind.BINARY
    normalised = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    assert FeatureKind.of(normalised) is FeatureKind.SCALED_BINARY


def test_a_row_of_zeros_is_exact_within_what_is_small_beside_others() -> None:
    truth = torch.tensor([[2.0, -1.0], [0.0, 0.0]])
    off = 0.9 * RELATIVE_TOLERANCE * 2.0
    assert exact(truth + off, truth, FeatureKind.REAL).tolist() == [True, True]
    assert exact(truth + 1.2 * off, truth, FeatureKind.REAL).tolist() == [False, False]
    assert matched_exact(truth + off, truth, FeatureKind.REAL) == 2


def test_no_entry_is_the_best_guess_of_mostly_empty_rows() -> None:
    truth = torch.tensor([[True, False], [False, False], [False, False]])
    scores = torch.tensor([[0.3, 0.1]]).expand(3, -1)
    assert best_entry_count(scores, truth) == 0 and best_entry_count(scores[:1], truth[:1]) == 1


@pytest.mark.parametrize("normalised", [False, True])
def test_norms_that_rows_have_in_common_are_no_achievement(normalised: bool) -> None:
    """Half the number of features was the guess of a server that knows no row, whatever norm all rows have."""
    x = np.random.default_rng(0).random((NODES, 24)) < 0.3
    x[::2] = 0 if not normalised else x[1::2]
    rows = x / x.sum(1, keepdims=True).clip(1) if normalised else x
    graph = {"x": rows.astype(np.float32), "y": np.arange(NODES) % 3, "edge_index": np.zeros((2, 0), dtype=int)}
    ring = np.arange(NODES)
    graph["edge_index"] = np.stack([np.r_[ring, (ring + 1) % NODES], np.r_[(ring + 1) % NODES, ring]])
    settings = {"name": "nfedgnn", "rounds": 2, "hidden": 8, "heads": 1}
    each = PartitionSpec("per-node")
    report = fglaudit.audit(
        graph, protocol=settings, partition=each, observers=["server"], attacks=["update-l1-norms"], empirical=False
    )
    found: Any = report.findings.itertuples()
    (row,) = found
    assert row.status == "ok", row.reason
    assert row.control == (1.0 if normalised else 0.5)
