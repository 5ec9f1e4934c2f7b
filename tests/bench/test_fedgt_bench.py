"""FedGT's long measurements: choices on validation nodes."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fglaudit.reproduce.papers import fedgt
from fglaudit.testing import example_graph

ROOT = Path(__file__).resolve().parents[2]


def test_choices_are_made_on_validation_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))  # not on the path when pytest runs as a command of its own
    choices = importlib.import_module("bench.fedgt.choices")
    planned = list(choices.choices())
    assert all(choice.seed < fedgt.SEEDS[0] for choice in planned)
    assert len({tuple(choice.key().values()) for choice in planned}) == len(planned)
    small = {"rounds": 2, "hidden": 8, "heads": 2}
    for choice in (planned[0], planned[-1]):
        row = choices.measure(choice._replace(settings=choice.settings | small), example_graph())
        assert set(row) == set(choices.VALUES) and 0 <= float(row["validation"]) <= 1
        assert bool(row["used_global_nodes"]) == (choice.method == "fedgt")


def test_a_client_alone_guesses_by_its_own_labels_and_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path 0 - 1 - 2 - 3 and node 4 alone: 0 trains as class 1, 3 as class 2, 4 as class 2."""
    monkeypatch.syspath_prepend(str(ROOT))
    alone = importlib.import_module("bench.fedgt.alone")
    client = SimpleNamespace(
        nodes=torch.arange(5),
        edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
        y=torch.tensor([1, 0, 0, 2, 2]),
        train=torch.tensor([True, False, False, True, True]),
    )
    frequent, spread = alone.guesses(client, 3)
    assert frequent == 2 and spread.tolist() == [1, 1, 2, 2, 2]


def test_propagation_and_scores_around_their_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes, one edge: the propagation matrix is 1/2 everywhere, and a walk ends where it began with
    1 / (2 - nu)."""
    monkeypatch.syspath_prepend(str(ROOT))
    authors = importlib.import_module("bench.fedgt.authors")
    graph = SimpleNamespace(nodes=torch.arange(2), edge_index=torch.tensor([[0, 1], [1, 0]]))
    client = authors.Client.of(graph, torch.nn.Linear(1, 1), 0.01)
    torch.testing.assert_close(client.near, torch.full((2, 2, authors.POWERS), 0.5))
    stays = 1 / (2 - authors.RESTART)
    expected = torch.tensor([[stays, 1 - stays], [1 - stays, stays]], dtype=torch.float64)
    torch.testing.assert_close(client.scores, expected)


def test_training_alone_is_tested_at_home_and_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    alone = importlib.import_module("bench.fedgt.alone")
    small = ["rounds=3", "hidden=8", "heads=2", "feed_forward=8", "global_nodes=2"]
    protocol = alone.local(["learning_rate=0.01", "sampling=attribute", *small])
    assert (protocol.learning_rate, protocol.sampling, protocol.hidden) == (0.01, "attribute", 8)
    assert alone.local(["source=code", "rounds=5"]).candidates == 256
    assert all(0 <= found <= 100 for found in alone.train(protocol, example_graph(), 0, 2))
    right, mask = torch.tensor([[True, False], [True, True]]), torch.tensor([[True, True], [True, False]])
    assert alone.mean_share(right, mask) == 75


def test_the_round_that_is_closest_to_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings: in round 1 off by 2 and 4, in round 2 by 1 and 1, in round 3 by 0 and 3."""
    monkeypatch.syspath_prepend(str(ROOT))
    rounds = importlib.import_module("bench.fedgt.rounds")
    assert rounds.closest(torch.tensor([[78.0, 81.0, 80.0], [66.0, 71.0, 73.0]]), torch.tensor([80.0, 70.0])) == 2
