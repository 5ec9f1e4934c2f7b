"""What is followed while node clients train: losses by round against their definition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fglaudit.federated.node_clients import NodeClients
from fglaudit.federated.node_progress import Record
from fglaudit.interfaces import Trained
from fglaudit.testing import example_graph

LAYOUT = {"layers.0.weight": (2, 2)}


def node_clients() -> NodeClients:
    graph = example_graph(nodes=12, clients=12)
    return NodeClients.of([graph.client(k) for k in range(12)], torch.device("cpu"))


def record(data: NodeClients, *scales: float) -> Trained:
    """Return the outcome of rounds whose logits are those of one draw times ``scales``."""
    drawn = torch.randn(12, 1, 7, generator=torch.Generator().manual_seed(0))
    kept = Record(data, LAYOUT, "last")
    for scale in scales:
        kept.add(scale * drawn, torch.zeros(1, 4))
    return kept.trained()


def test_losses_are_means_over_the_samples_of_each_kind() -> None:
    data, scales = node_clients(), (0.0, 1.0, 2.0)
    drawn = torch.randn(12, 1, 7, generator=torch.Generator().manual_seed(0))
    series = record(data, *scales).series
    assert set(series) == {"training_loss", "validation_loss"}
    for name, mask in (("training_loss", data.train), ("validation_loss", data.val)):
        expected = [float(functional.cross_entropy(scale * drawn[mask], data.y[mask])) for scale in scales]
        assert series[name].tolist() == pytest.approx(expected, rel=1e-5)


def test_samples_that_there_are_not_have_no_loss() -> None:
    data = node_clients()
    assert set(record(replace(data, val=torch.zeros_like(data.val)), 1.0).series) == {"training_loss"}
    assert record(data, float("inf"), 1.0).series == {}, "a record holds finite figures alone"


def test_stages_of_a_training_have_the_series_that_all_have() -> None:
    accuracy = torch.ones(2)
    parts = [torch.tensor([4.0, 3.0]), torch.tensor([2.0, 1.0])]
    stages = [Trained(accuracy.unsqueeze(1), accuracy, {}, series={"training_loss": part}) for part in parts]
    stages[1] = replace(stages[1], series={**stages[1].series, "own_weight": accuracy})
    joined = Trained.of_stages(stages)
    assert {name: values.tolist() for name, values in joined.series.items()} == {"training_loss": [4.0, 3.0, 2.0, 1.0]}
    assert len(joined.accuracy) == 4
