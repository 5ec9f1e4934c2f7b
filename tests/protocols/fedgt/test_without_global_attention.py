"""FedGT whose nodes do not attend to global nodes (appendix E.9), and the weights of its personal averages."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fglaudit.adversary.uploads.known_nodes import predict
from fglaudit.nn.graph_transformer import Dropout
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedgt.sources import AS_PUBLISHED
from fglaudit.rng import derive
from fglaudit.testing import Run, check_protocol, example_graph, record
from fglaudit.view import Observer

SMALL: dict[str, Any] = {
    "rounds": 2, "hidden": 8, "heads": 2, "feed_forward": 8, "global_nodes": 3, "neighbors": 4, "candidates": 8,
}  # fmt: skip
SOURCES: dict[str, dict[str, Any]] = {"paper": SMALL, "code": AS_PUBLISHED | SMALL}


def trained(source: str, *, attends: bool) -> Run:
    return record(FedGT(**SOURCES[source], global_attention=attends), example_graph(classes=2))


@pytest.mark.parametrize("source", SOURCES)
def test_conformance(source: str) -> None:
    check_protocol(FedGT(**SOURCES[source], global_attention=False, tested="received"), example_graph(classes=2))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("attends", [True, False])
def test_global_nodes_enter_scores_of_clients_and_of_observers_only_where_nodes_attend_to_them(
    source: str, attends: bool
) -> None:
    run = trained(source, attends=attends)
    layout = run.trained.layout
    models = torch.cat([run.trained.weights[name].flatten(1) for name in layout], 1)
    rows, centers = (torch.randn(3, n, 8, generator=derive(n)) for n in (5, 3))
    view = run.view(Observer((SERVER,)))
    seen = [predict(view, models, centers + shift, rows, Dropout(0, None)) for shift in (0.0, torch.arange(8.0))]
    assert torch.equal(seen[0], seen[1]) != attends

    protocol, graph = run.protocol, run.graph
    assert isinstance(protocol, FedGT)
    clients, _, _ = protocol.prepare(graph, run.channel, derive(0), torch.device("cpu"))
    inputs = torch.randn(3, clients.inputs.labels.shape[1], 8, generator=derive(1))
    scores = [
        clients.surroundings.everyone(derive(2)).logits(run.trained.weights, inputs, nodes, Dropout(0, None))
        for nodes in (centers, centers + torch.arange(8.0))
    ]
    assert torch.equal(scores[0], scores[1]) != attends


def test_global_nodes_are_clustered_and_compared_all_the_same() -> None:
    run = trained("paper", attends=False)
    assert len(set(run.trained.truth["clusters"][1].flatten().tolist())) > 1
    assert bool((run.trained.matrices["personal_weights"].diagonal(0, 1, 2) > 1 / 3).all())


def test_matrices_hold_the_weights_of_every_rounds_averages() -> None:
    run = trained("paper", attends=True)
    weights = run.trained.matrices["personal_weights"]
    assert weights.shape == (2, 3, 3) and torch.allclose(weights.sum(2), torch.ones(2, 3))
    assert torch.equal(weights.diagonal(0, 1, 2).mean(1), run.trained.series["own_weight"])
    assert "personal_weights" not in run.recording.history
