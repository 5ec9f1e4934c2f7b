"""How attacks account for what a defense publishes: clips, rounding, noise on rows, sums that alone are readable."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from fglaudit.adversary.clipping import KnownClip, added_std
from fglaudit.adversary.public_rules import rounding_of_sums
from fglaudit.attacking import adapted
from fglaudit.attacks.jacobians.mask_flip import MaskFlip
from fglaudit.attacks.latents.weight_difference import WeightDifference
from fglaudit.attacks.neighborhoods.row_levels import to_levels
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.defenses.noise.clipping import Clipping
from fglaudit.defenses.noise.joint_noise import JointNoise
from fglaudit.defenses.noise.quantisation import Quantisation
from fglaudit.graph import FederatedGraph, federate
from fglaudit.interfaces import Defense, Reconstruction
from fglaudit.payloads import SERVER, Latents, ModelUpdate, NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View

KNOWING = Observer(parties=(SERVER,), topology=True, auxiliary=0.1)


def exact(result: Reconstruction, graph: FederatedGraph) -> float:
    """Return the share of rebuilt rows that equal their node's."""
    return float((result.rows == graph.x[result.nodes]).all(1).double().mean())


@pytest.mark.parametrize("order", [1.0, 2.0, math.inf])
def test_effect_of_a_clip_on_gaussian_messages(order: float) -> None:
    rng, dimensions = derive(0, "messages"), 40
    value = 0.7 * torch.randn(4000, dimensions, generator=rng, dtype=torch.double)
    bound = {1.0: 12.0, 2.0: 2.5, math.inf: 0.6}[order]
    length = value.norm(p=order, dim=1, keepdim=True)
    cut = value.clamp(-bound, bound) if order == math.inf else value * (bound / length).clamp(max=1)
    factor, rest = KnownClip(bound, order).effect(torch.tensor([dimensions * 0.49], dtype=torch.double), dimensions)
    fitted = float((cut * value).sum() / value.square().sum())
    assert float(factor) == pytest.approx(fitted, rel=0.03)
    if order == math.inf:
        assert float(rest) == pytest.approx(float((cut - fitted * value).square().mean()), rel=0.05)


def per_user() -> FederatedGraph:
    """Return the example graph with one client per node."""
    graph = example_graph(nodes=30)
    train = torch.arange(30) % 3 == 0
    masks = (train.unsqueeze(1).unbind(), torch.zeros(30, 1, dtype=torch.bool).unbind(), (~train).unsqueeze(1).unbind())
    return dataclasses.replace(
        graph, clients=torch.arange(30).unsqueeze(1).unbind(), train=masks[0], val=masks[1], test=masks[2]
    )


def recorded(defense: Defense) -> View:
    protocol = CNFGNN(rounds=2, optimizer="sgd", learning_rate=3.0, hidden=8)
    return record(protocol, per_user(), defense).view(KNOWING)


def test_clips_are_read_from_every_defense_that_clips_messages() -> None:
    both = ("Latents", "ModelUpdate")
    view = recorded(JointNoise(on=both, clip=(0.5, 2.0)))
    assert KnownClip.of(view, Latents) == KnownClip(0.5, 2.0) and KnownClip.of(view, ModelUpdate) == KnownClip(2.0, 2.0)
    assert KnownClip.of(recorded(Clipping(on=("Latents",), clip=(0.3,))), ModelUpdate) is None
    assert KnownClip.of(recorded(ClippedLaplace(on=both, clip=0.1)), Latents) == KnownClip(0.1, math.inf)
    assert KnownClip.of(recorded(ClippedLaplace(on=both, clip=0.1, norm="l1")), Latents) == KnownClip(0.1, 1.0)


def test_rounding_counts_as_noise() -> None:
    view = recorded(Quantisation(on=("Latents",), bits=3))
    values = torch.randn(2000, 12, generator=derive(0, "values"))
    low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
    step = (high - low) / 7
    position = (values - low) / step
    rounded = low + step * (position + torch.rand(values.shape, generator=derive(1, "values"))).floor().clamp(max=7)
    assert added_std(view, Latents, values) == pytest.approx(float((rounded - values).std()), rel=0.15)
    assert added_std(view, ModelUpdate, values) == 0


@pytest.mark.parametrize(
    "defense",
    [
        Clipping(on=("ModelUpdate",), clip=(0.5,)),  # the weights themselves, far below their norm
        ClippedLaplace(on=("ModelUpdate",), clip=5.0, scale=1e-7),
    ],
)
def test_rows_behind_clipped_weights(defense: Defense) -> None:
    graph = per_user()
    view = recorded(defense)
    result = WeightDifference().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    assert exact(result, graph) > 0.5


def test_noisy_rows_are_decided_by_expected_f1() -> None:
    graph = example_graph(nodes=60)
    view = record(FedGCN(hops=1, rounds=1), graph).view(dataclasses.replace(KNOWING, auxiliary=0.5))
    nodes = torch.arange(60)
    for std, at_least in ((0.01, 1.0), (50.0, 0.2)):
        noisy = graph.x + std * torch.randn(graph.x.shape, generator=derive(0, "noise"))
        bits = to_levels(view, noisy, nodes, torch.full((60,), std), unit_ball=False)
        f1 = 2 * (bits * graph.x).sum(1) / (bits.sum(1) + graph.x.sum(1)).clamp(min=1)
        assert float(f1.mean()) >= at_least
        assert bool((bits.sum(1) > 0).all())  # a likeliest row would be empty under strong noise


def test_sums_that_secure_aggregation_leaves_in_the_clear_are_taken_apart() -> None:
    pytest.importorskip("cryptography")
    graph = example_graph()
    view = record(FedGCN(hops=1, rounds=1), graph, SecureAggregation(on=("NeighborSums",))).view(KNOWING)
    assert SubsetSum().unsupported(view) is None
    result = SubsetSum().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction) and result.proven is not None
    assert len(result.rows) > 40 and exact(result, graph) > 0.5
    assert torch.equal(result.rows[result.proven], graph.x[result.nodes[result.proven]])


def test_fixed_point_of_ciphertexts_proves_nothing_wrong() -> None:
    pytest.importorskip("tenseal")
    graph = example_graph()
    run = record(FedGCN(hops=1, rounds=1), graph, HomomorphicEncryption(bits=14))
    view = run.view(Observer(parties=(0,), topology=True))
    assert 0 < rounding_of_sums(view, NeighborSums) < 0.05
    result = SubsetSum().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction) and result.proven is not None
    assert torch.equal(result.rows[result.proven], graph.x[result.nodes[result.proven]])


def test_mask_flip_runs_under_clipping_of_entries_and_says_that_it_does_not_model_it() -> None:
    drawn = draw_task("csbm-dnc", CsbmTask(nodes=30, dimensions=8))
    assert drawn.train is not None and drawn.val is not None and drawn.test is not None
    graph = federate(drawn, list(torch.arange(30).unsqueeze(1)), drawn.train, drawn.val, drawn.test)
    for defense in (ClippedLaplace(on=("Jacobians",), clip=0.1, scale=0.1), Quantisation(on=("Jacobians",))):
        view = record(GFLAPPNP(hidden=4, rounds=2), graph, defense).view(Observer(parties=(0,)))
        assert MaskFlip().unsupported(view) is None
        MaskFlip().run(view, rng=derive(0, "attack"), device=CPU)
        assert adapted(MaskFlip(), view.public.facts).startswith("no: ")
