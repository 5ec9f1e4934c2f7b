"""Real-valued rows of very different or very small size: proofs say nothing that float32 does not decide."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from node_graphs import graph as node_graph
from scored_runs import finding_of, game_of

from fglaudit.attacks.jacobians.jacobian_reading import JacobianReading
from fglaudit.attacks.jacobians.label_reading import LabelReading
from fglaudit.attacks.jacobians.mask_flip import MaskFlip
from fglaudit.attacks.jacobians.representation_inversion import RepresentationInversion
from fglaudit.attacks.latents.weight_difference import WeightDifference
from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.attacks.neighborhoods.power_moments import PowerMoments
from fglaudit.attacks.neighborhoods.second_moments import SecondMoments
from fglaudit.attacks.neighborhoods.vector_columns import VectorColumns
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.finding import Status
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.fedgat.fedgat import FedGAT, Variant
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.quantities.rows.claims import check_claims
from fglaudit.quantities.rows.game import score
from fglaudit.quantities.rows.metrics import directions
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer


def scaled(graph: FederatedGraph, *scales: float) -> FederatedGraph:
    """Return ``graph`` with drawn rows of norm one half, each times one of ``scales`` in turn."""
    drawn = torch.randn(graph.x.shape, generator=derive(0, "rows"))
    size = torch.tensor(scales)[torch.arange(len(drawn)) % len(scales)]
    return dataclasses.replace(graph, x=directions(drawn) / 2 * size[:, None], features=FeatureKind.REAL)


def attacked(run: Run, attack: Attack, observer: Observer) -> tuple[int, int]:
    """Return how many rows ``attack`` proves, and how many of these are wrong."""
    found = attack.run(run.view(observer), rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Reconstruction) and found.proven is not None
    scored = score([game_of(run, observer)], [found])
    assert scored.proven is not None
    return int(scored.proven.sum()), scored.false_proofs


@pytest.mark.parametrize("scales", [(1.0,), (1e-20,), (1e-20, 1.0), (1e-5, 1.0)], ids=str)
@pytest.mark.parametrize(
    ("attack", "variant"),
    [
        (SecondMoments(), "matrix"),
        (PowerMoments(), "matrix"),
        (JointDiagonalisation(), "matrix"),
        (SecondMoments(), "vector"),
        (VectorColumns(), "vector"),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_rows_that_rounding_drowns_are_not_proven(attack: Attack, variant: Variant, scales: tuple[float, ...]) -> None:
    graph = scaled(example_graph(nodes=24, features=6), *scales)
    run = record(FedGAT(rounds=1, heads=2, hidden=3, variant=variant), graph)
    for client in range(3):
        proven, wrong = attacked(run, attack, Observer((client,), degrees=True, topology=True))
        assert wrong == 0
        assert proven >= 3 or scales != (1.0,)


@pytest.mark.parametrize("scales", [(1.0,), (1e-20,), (1e-20, 1e6)], ids=str)
@pytest.mark.parametrize("attack", [RowSpace(), MaximumAPosteriori()], ids=lambda each: each.name)
def test_sums_prove_no_row_that_rounding_hides(attack: Attack, scales: tuple[float, ...]) -> None:
    """A row that is zero but for rounding was proven to be zero, and was 1e-20 times another one."""
    graph = scaled(example_graph(nodes=24, features=6), *scales)
    run = record(FedGCN(hops=1, rounds=1, aggregate="counts"), graph)
    proven, wrong = attacked(run, attack, Observer((SERVER,), topology=True))
    assert wrong == 0
    assert proven >= 12 or scales != (1.0,)


@pytest.mark.parametrize("scales", [(1.0,), (1e-20,), (1e-6, 1.0)], ids=str)
def test_weight_differences_prove_rows_that_they_resolve(scales: tuple[float, ...]) -> None:
    graph = scaled(example_graph(nodes=24, features=6, clients=24), *scales)
    run = record(CNFGNN(rounds=2, hidden=4, optimizer="sgd", learning_rate=0.5), graph)
    proven, wrong = attacked(run, WeightDifference(), Observer((SERVER,), initial_weights=True))
    assert wrong == 0
    assert proven >= 3 or scales != (1.0,)


def test_short_rows_have_directions() -> None:
    """Rows of 1e-20 that were read exactly counted as false claims, with cosine 0."""
    rows = torch.tensor([[3e-20, 4e-20], [0.0, 0.0], [3e30, -4e30]])
    assert torch.allclose(directions(rows), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, -0.8]]))
    run = record(GFLAPPNP(hidden=8, rounds=4, local_steps=2), scaled(node_graph(), 1e-20))
    observer = Observer((SERVER,))
    game, view = game_of(run, observer), run.view(observer)
    found = JacobianReading().run(view, rng=derive(0, "attack"), device=CPU)
    assert check_claims(found, game, view).columns()["false_claim_rate"] == 0
    assert float(score([game], [found]).rows.cosine.mean()) > 0.9


@pytest.mark.parametrize(
    "attack", [JacobianReading(), RepresentationInversion(), LabelReading(), MaskFlip()], ids=lambda each: each.name
)
def test_rounds_after_a_training_diverged_are_left_out(attack: Attack) -> None:
    """Rows of 1e6 make models that are no numbers: attacks failed on what was sent before, too."""
    graph = scaled(example_graph(nodes=24, features=6, clients=24), 2e6)
    run = record(GFLAPPNP(hidden=8, rounds=6, local_steps=2), graph)
    models = [batch.payload.tensors()["vector"] for batch in run.view(Observer((SERVER,))).messages.of(ModelUpdate)]
    assert not bool(models[-1].isfinite().all())
    observer = ("client:0",) if isinstance(attack, MaskFlip) else ("server",)
    finding = finding_of(run, attack, ObserverSpec(observer, topology=True))
    assert finding.status is Status.OK
    assert finding.value == 1 or not isinstance(attack, JacobianReading)
