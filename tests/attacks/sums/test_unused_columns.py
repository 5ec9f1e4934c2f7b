"""Columns that are never used: what no sum says is guessed, beside what sums say of the others."""

from __future__ import annotations

import pytest
import torch
from scored_runs import finding_of

from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.defenses.graph.fewer_features import FewerFeatures
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph, record


@pytest.mark.parametrize("hops", [1, 2])
def test_rows_with_unused_columns_are_not_below_the_guess(hops: int) -> None:
    """Zeros in every unused column were: a guess has the likeliest entries there."""
    graph = example_graph(nodes=80, features=200)
    draw = torch.Generator().manual_seed(0)
    frequency = torch.where(torch.arange(200) % 8 == 0, 0.5, 0.03)
    graph.x.copy_((torch.rand(graph.x.shape, generator=draw) < frequency).float())
    run = record(FedGCN(hops=hops, rounds=1), graph, FewerFeatures())
    found = finding_of(run, RowSpace(), ObserverSpec(("client:each",)))
    assert found.value is not None and found.control is not None
    assert found.metric == "f1" and found.value > found.control + 0.02
