"""Rows that FedGAT's server propagates before it masks them: against dense powers, what it costs, what readers are
told, and what no attack claims to read."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from fedgat_runs import SMALL, VARIANTS, mixed_graph, train

from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.errors import FglauditError
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.smoothing import propagated
from fglaudit.payloads import MaskedMatrices, RawFeatures
from fglaudit.protocols.fedgat.fedgat import FedGAT, Variant
from fglaudit.testing import example_graph, record

PLAIN = FedGAT(**SMALL)
SMOOTH = dataclasses.replace(PLAIN, smoothing_hops=3)
NOISE = Gaussian(epsilon=8.0, on="RawFeatures")


def test_the_server_propagates_over_the_whole_graph() -> None:
    graph = example_graph()
    closed = torch.eye(graph.num_nodes)
    closed[graph.edge_index[0], graph.edge_index[1]] = 1
    scale = closed.sum(1).rsqrt()
    step = scale.unsqueeze(1) * closed * scale
    edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
    expected = torch.linalg.matrix_power(step, 3) @ graph.x
    assert torch.allclose(propagated(graph.x, edges, 3), expected, atol=1e-5)


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_clients_train_on_masked_messages_of_smoothed_rows(variant: Variant) -> None:
    """Both ways to compute the first layer agree, and equal plain FedGAT on a graph whose rows were smoothed before."""
    graph = mixed_graph()
    edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
    rows = torch.nn.functional.normalize(propagated(graph.x, edges, 3))
    smooth = dataclasses.replace(SMOOTH, variant=variant)
    expected = train(dataclasses.replace(PLAIN, variant=variant), dataclasses.replace(graph, x=rows))
    for path in ("matrices", "moments"):
        found = train(dataclasses.replace(smooth, path=path), graph)
        for name, weight in expected.weights.items():
            assert torch.allclose(found.weights[name], weight, atol=1e-5)


def test_smoothing_costs_no_epsilon_and_no_message() -> None:
    one, other = (record(protocol, defense=NOISE) for protocol in (PLAIN, SMOOTH))
    epsilon = one.recording.guarantee.epsilon_accounted
    assert epsilon is not None and epsilon == other.recording.guarantee.epsilon_accounted
    assert one.channel.bytes_up.equal(other.channel.bytes_up)


def test_notes_say_when_smoothing_and_noise_do_not_belong_together() -> None:
    assert any("as they arrive" in note for note in record(PLAIN, defense=NOISE).trained.notes)
    assert any("as they arrive" in note for note in record(PLAIN, defense=MultiBit()).trained.notes)
    assert any("without noise" in note for note in record(SMOOTH).trained.notes)
    for run in (record(SMOOTH, defense=NOISE), record(PLAIN)):
        assert not any("smooth" in note for note in run.trained.notes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_was_stated_for_single_rows_is_not_stated_for_smoothed_ones(variant: type[MaskedMatrices]) -> None:
    smooth = dataclasses.replace(SMOOTH, variant="matrix" if variant is MaskedMatrices else "vector")
    context = smooth.context(example_graph())
    on_messages = Gaussian(on=variant.__name__).unsupported(context)
    assert on_messages is not None and "smoothed over 3 hops" in on_messages
    sealed = HomomorphicEncryption(on=("RawFeatures",)).unsupported(context)
    assert sealed is not None and "smoothing_hops: 0" in sealed
    assert smooth.layer_inputs(example_graph(), []) is None
    assert not {RawFeatures} & set(smooth.aggregates(example_graph()))


def test_a_negative_number_of_hops_is_refused() -> None:
    with pytest.raises(FglauditError, match="smoothing_hops"):
        FedGAT(smoothing_hops=-1)
