"""Latents that the server propagates before its layers: against dense powers, and what readers are told of it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from user_graphs import user_graph

from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.protocols.nfedgnn.split_server import Smoothed, SplitGat, SplitGcn
from fglaudit.rng import derive
from fglaudit.testing import record

NOISE = ClippedNoise(epsilon=8.0)
PLAIN = NFedGNN(rounds=2, hidden=4)
SMOOTH = dataclasses.replace(PLAIN, smoothing_hops=3)


def users() -> FederatedGraph:
    graph = user_graph(nodes=16)
    return dataclasses.replace(graph, x=graph.x.float())


@pytest.mark.parametrize("split", ["gcn", "gat"])
def test_the_layers_read_latents_times_a_power_of_the_adjacency(split: str) -> None:
    graph, rng = users(), derive(0, "latents")
    n = graph.num_nodes
    closed = torch.eye(n)
    closed[graph.edge_index[0], graph.edge_index[1]] = 1
    scale = closed.sum(1).rsqrt()
    step = scale.unsqueeze(1) * closed * scale
    latents = torch.randn(n, 4, generator=rng)
    if split == "gcn":
        network, weights = SplitGcn.on(graph.edge_index, n, torch.float32), [torch.randn(4, 3, generator=rng)]
    else:
        network = SplitGat.on(graph.edge_index, n)  # type: ignore[assignment]
        shapes = ((2, 2), (2, 2), (4, 3), (1, 3), (1, 3))
        weights = [torch.randn(*shape, generator=rng) for shape in shapes]
    smoothed = Smoothed.on(network, graph.edge_index, n, torch.float32, 3)
    expected = network.logits(torch.linalg.matrix_power(step, 3) @ latents, weights)
    assert torch.allclose(smoothed.logits(latents, weights), expected, atol=1e-5)
    assert not torch.allclose(network.logits(latents, weights), expected, atol=1e-3)


def test_notes_say_when_smoothing_and_noise_do_not_belong_together() -> None:
    graph = users()
    assert any("as they arrive" in note for note in record(PLAIN, graph, NOISE).trained.notes)
    assert any("without noise" in note for note in record(SMOOTH, graph).trained.notes)
    for run in (record(SMOOTH, graph, NOISE), record(PLAIN, graph)):
        assert not any("smooth" in note for note in run.trained.notes)


def test_smoothing_costs_no_epsilon() -> None:
    one, other = (record(protocol, users(), NOISE).recording.guarantee for protocol in (PLAIN, SMOOTH))
    assert one.epsilon_accounted == other.epsilon_accounted == pytest.approx(8.0, rel=1e-4)


def test_a_negative_number_of_hops_is_refused() -> None:
    with pytest.raises(FglauditError, match="smoothing_hops"):
        NFedGNN(smoothing_hops=-1)
