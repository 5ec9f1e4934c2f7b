"""Sums that are propagated further, against dense powers of the adjacency; and what readers are told of it."""

from __future__ import annotations

import pytest
import torch

from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.graph.fewer_features import FewerFeatures
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.errors import FglauditError
from fglaudit.interfaces import DefenseSession
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.wire.channel import RecordingChannel


@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
@pytest.mark.parametrize("hops", [1, 2])
def test_inputs_are_sums_times_a_power_of_the_adjacency(hops: int, aggregate: Weights) -> None:
    graph = example_graph()
    closed = torch.eye(graph.num_nodes, dtype=torch.float64)
    closed[graph.edge_index[0], graph.edge_index[1]] = 1
    scale = closed.sum(1).rsqrt()
    step = scale.unsqueeze(1) * closed * scale
    first = step if aggregate == "normalised" else closed / closed.sum(1, keepdim=True)
    expected = torch.linalg.matrix_power(step, 3) @ first @ graph.x.double()
    protocol = FedGCN(hops=hops, aggregate=aggregate, smoothing_hops=3)
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"))
    problem, inputs = protocol.pretrain(graph, channel, CPU)
    rows = problem.rows.node[problem.needed(protocol.layers)]
    assert torch.allclose(inputs.double(), expected[rows], atol=1e-5)


def test_notes_say_when_smoothing_and_noise_do_not_belong_together() -> None:
    noise = Gaussian(epsilon=8.0)
    assert any("as they arrive" in note for note in record(FedGCN(hops=1, rounds=1), defense=noise).trained.notes)
    smoothing = FedGCN(hops=1, rounds=1, smoothing_hops=2)
    assert any("without noise" in note for note in record(smoothing).trained.notes)
    assert not record(smoothing, defense=noise).trained.notes
    assert not record(FedGCN(hops=1, rounds=1)).trained.notes


def test_random_rows_count_as_noise_and_clipped_ones_do_not() -> None:
    """LPGNN's first two parts: multi-bit reports of rows, propagated."""
    rows, smoothing = MultiBit(epsilon=4.0), FedGCN(hops=1, rounds=1, smoothing_hops=2)
    run = record(smoothing, defense=rows)
    assert not run.trained.notes and run.recording.guarantee.epsilon_accounted == pytest.approx(4.0)
    assert any("as they arrive" in note for note in record(FedGCN(hops=1, rounds=1), defense=rows).trained.notes)
    assert any("without noise" in note for note in record(smoothing, defense=FewerFeatures(share=0.5)).trained.notes)


def test_smoothing_costs_no_epsilon() -> None:
    noise = Gaussian(epsilon=8.0)
    plain, smooth = (record(FedGCN(hops=1, rounds=1, smoothing_hops=s), defense=noise) for s in (0, 4))
    assert plain.recording.guarantee.epsilon_accounted == smooth.recording.guarantee.epsilon_accounted


def test_encryption_is_refused_where_rows_are_passed_on_in_the_clear() -> None:
    graph = example_graph()
    context = FedGCN(hops=1, smoothing_hops=2).context(graph)
    why = HomomorphicEncryption(on=("NeighborSums",)).unsupported(context)
    assert why is not None and "pass rows on in the clear" in why


@pytest.mark.parametrize("hops", [0, 3])
def test_other_hops_are_refused(hops: int) -> None:
    with pytest.raises(FglauditError, match="smoothing_hops"):
        FedGCN(hops=hops, smoothing_hops=4)
