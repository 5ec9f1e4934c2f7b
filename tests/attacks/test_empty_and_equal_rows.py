"""Attacks on graphs where some rows hold nothing but zeros, or all rows of a class are equal."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from node_graphs import graph as node_graph
from scored_runs import finding_of, game_of

from fglaudit.adversary.priors.feature_prior import FeaturePrior
from fglaudit.attacks.global_nodes.global_node_labels import GlobalNodeLabels
from fglaudit.attacks.jacobians.mask_flip import MaskFlip
from fglaudit.attacks.neighborhoods.embedding_inversion import EmbeddingInversion
from fglaudit.attacks.neighborhoods.moment_evaluation import MomentAttack
from fglaudit.attacks.neighborhoods.power_moments import PowerMoments
from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows
from fglaudit.attacks.neighborhoods.second_moments import SecondMoments
from fglaudit.attacks.neighborhoods.vector_columns import VectorColumns
from fglaudit.attacks.sums.equations.copied_rows import with_copies
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.finding import Status
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Inference, Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.fedgat.fedgat import FedGAT, Variant
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.quantities.rows.claims import check_claims
from fglaudit.quantities.rows.game import Game
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer


def every_third_row_empty(graph: FederatedGraph) -> FederatedGraph:
    x = graph.x.clone()
    x[::3] = 0
    return dataclasses.replace(graph, x=x)


@pytest.mark.parametrize("attack", [SecondMoments(), PowerMoments()], ids=lambda attack: attack.name)
@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_neighbourhoods_without_an_entry_prove_nothing_wrong(attack: MomentAttack, variant: Variant) -> None:
    """Moments of rounding errors were fitted by rows a million long, beside which all others counted as zero."""
    graph = every_third_row_empty(example_graph())
    run = record(FedGAT(rounds=1, heads=2, hidden=3, variant=variant), graph)
    for client in range(3):
        view = run.view(Observer((client,), degrees=True, topology=True))
        for seed in range(2):
            result = attack.run(view, rng=derive(seed, "attack"), device=CPU)
            assert isinstance(result, Reconstruction) and result.proven is not None
            assert int(result.proven.sum()) >= 8
            assert torch.equal(result.rows[result.proven], graph.x[result.nodes[result.proven]])


@pytest.mark.parametrize("attack", [VectorColumns(), SecondMoments()], ids=lambda attack: attack.name)
def test_a_hub_without_an_entry_is_not_proven_to_have_some(attack: VectorColumns | SecondMoments) -> None:
    """It is the only unknown row of its leaves: rounding errors were compared with themselves alone, and were ones."""
    graph, leaves = example_graph(nodes=40, features=3), torch.arange(1, 40)
    edges = torch.cat([torch.stack([leaves * 0, leaves]), torch.stack([leaves, leaves * 0])], 1)
    edges = edges[:, (edges[0] * 40 + edges[1]).argsort()]
    rows = (torch.rand(40, 3, generator=derive(1, "rows")) < 0.5).float()
    x = rows / rows.sum(1, keepdim=True).clamp(min=1)
    x[0] = 0
    star = dataclasses.replace(graph, x=x, edge_index=edges, features=FeatureKind.SCALED_BINARY)
    variant: Variant = "vector" if isinstance(attack, VectorColumns) else "matrix"
    run = record(FedGAT(rounds=1, heads=2, hidden=3, variant=variant), star)
    proven = 0
    for client in range(3):
        result = attack.run(run.view(Observer((client,))), rng=derive(0, "attack"), device=CPU)
        assert isinstance(result, Reconstruction) and result.proven is not None
        torch.testing.assert_close(result.rows[result.proven], x[result.nodes[result.proven]])
        proven += int(result.proven.sum())
    assert proven == 2, "the hub's row, at both clients that do not hold it"


@pytest.mark.parametrize("seed", range(3))
def test_open_rows_of_sums_are_taken_from_known_rows_that_repeat(seed: int) -> None:
    """Averages of three kinds of rows are no row: 46 % were exact where copies of known rows make 89 %."""
    graph = example_graph(seed=seed)
    kinds = torch.randn(3, graph.num_features, generator=derive(seed, "kinds"))
    graph = dataclasses.replace(graph, x=kinds[torch.arange(60) % 3], features=FeatureKind.REAL)
    run = record(FedGCN(hops=1, rounds=1, aggregate="counts"), graph)
    finding = finding_of(run, RowSpace(), ObserverSpec(("client:each",)))
    assert finding.value is not None and finding.control is not None and finding.identifiable_rate is not None
    assert finding.value > finding.identifiable_rate + 0.2
    assert finding.value > finding.control + 0.2


def test_rows_are_copies_only_where_known_ones_repeat() -> None:
    rng = derive(0, "rows")
    rows, prior = torch.randn(4, 6, generator=rng, dtype=torch.double), torch.zeros(4, 6, dtype=torch.double)
    about = FeaturePrior(prior, prior + 1, 1.0, 6.0, True)
    known = torch.randn(8, 6, generator=rng, dtype=torch.double)
    assert torch.equal(with_copies(rows, known, about), rows)
    estimate = rows * 0.9 + 0.1 * torch.randn(4, 6, generator=rng, dtype=torch.double)
    assert torch.equal(with_copies(estimate, rows.repeat(2, 1), about), rows)
    several = torch.cat([known, rows[:1], rows[:1]])
    found = with_copies(estimate, several, about)
    assert torch.equal(found[0], rows[0]) and torch.equal(found[1:], estimate[1:])


def test_a_row_longer_than_any_is_cut_down_and_not_sure() -> None:
    rows = torch.tensor([[[3.0, 4.0], [0.6, 0.8]]])
    sure, none = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2)
    found = NeighborhoodRows.of(torch.tensor([7]), rows, sure, none, rows[:, 1])
    torch.testing.assert_close(found.rows, rows[0, 1].expand(2, -1))
    assert found.sure.tolist() == [False, True]
    noisy = NeighborhoodRows.of(torch.tensor([7]), rows, sure, none + 1, rows[:, 1])
    assert torch.equal(noisy.rows, rows[0])


def test_a_client_whose_own_row_is_empty_reads_the_sums_of_others() -> None:
    """The typical length of a row was 0: rows could not be named, or were claimed as rows of zeros."""
    run = record(GFLAPPNP(hidden=8, rounds=4, local_steps=2), every_third_row_empty(node_graph()))
    observer = Observer((0,), topology=True)
    result = MaskFlip().run(run.view(observer), rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction) and result.claimed is not None
    assert bool(result.rows.isfinite().all()) and bool((result.nodes >= 0).any())
    assert bool(result.rows[result.claimed].any(1).all())


def test_a_claimed_row_of_zeros_is_false_unless_somebody_has_one() -> None:
    run = record(FedGAT(rounds=1), every_third_row_empty(example_graph()))
    observer = Observer((0,))
    game, view = game_of(run, observer), run.view(observer)
    claim = Reconstruction(
        torch.zeros(1, 24), torch.tensor([-1]), torch.ones(1), claimed=torch.ones(1, dtype=torch.bool)
    )
    checked = check_claims(claim, game, view)
    assert (checked.claimed, checked.false) == (1, 0)
    assert not bool(checked.found.any())  # a row of zeros has no direction
    some = game.truth.any(1)
    clear = Game.about(game.targets[some], game.truth[some], game.kind)
    own = dataclasses.replace(view, own=tuple(dataclasses.replace(c, x=c.x + 1) for c in view.own))
    assert check_claims(claim, clear, own).false == 1


@pytest.mark.parametrize(("hidden", "determined"), [(3, False), (8, True)])
def test_real_rows_are_claimed_where_every_entry_has_an_equation(hidden: int, determined: bool) -> None:
    """With 18 equations for 24 entries the prior filled in the rest, and the rows were claimed all the same."""
    graph = example_graph()
    x = graph.x + torch.rand(graph.x.shape, generator=derive(0, "x"))
    graph = dataclasses.replace(graph, x=x, features=FeatureKind.REAL)
    run = record(FedGAT(rounds=2, heads=2, hidden=hidden, optimizer="adam", learning_rate=0.02), graph)
    observer = Observer((0,), degrees=True, auxiliary=0.2)
    result = EmbeddingInversion().run(run.view(observer), rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction) and result.claimed is not None
    assert bool(result.claimed.any()) == determined
    checked = check_claims(result, game_of(run, observer), run.view(observer))
    assert checked.false == 0


def test_labels_of_clients_are_inferred_where_rows_of_a_class_are_equal() -> None:
    """Class means without a spread left no error to divide by."""
    graph = example_graph()
    first = torch.stack([graph.x[graph.y == c][0] for c in range(graph.num_classes)])
    run = record(FedGT(rounds=3), dataclasses.replace(graph, x=first[graph.y]))
    view = run.view(Observer((-1,), topology=True, degrees=True, initial_weights=True, auxiliary=0.2))
    attack = GlobalNodeLabels()
    assert attack.unsupported(view) is None
    result = attack.run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Inference)
    torch.testing.assert_close(result.estimate.sum(1), torch.ones(3, dtype=torch.double))


@pytest.mark.parametrize("features", [FeatureKind.BINARY, FeatureKind.SCALED_BINARY])
@pytest.mark.parametrize("seed", range(3))
def test_open_discrete_rows_of_a_star_are_taken_from_known_rows_that_repeat(features: FeatureKind, seed: int) -> None:
    """A leaf sees one row, the hub a sum of all: averages cut to bits are no row, and 0 to 12 % were exact."""
    graph, leaves = example_graph(nodes=40, seed=seed), torch.arange(1, 40)
    edges = torch.cat([torch.stack([leaves * 0, leaves]), torch.stack([leaves, leaves * 0])], 1)
    edges = edges[:, (edges[0] * 40 + edges[1]).argsort()]
    kinds = (torch.rand(3, graph.num_features, generator=derive(seed, "kinds")) < 0.4).float()
    if features is FeatureKind.SCALED_BINARY:
        kinds = kinds / kinds.sum(1, keepdim=True).clamp(min=1)
    graph = dataclasses.replace(graph, x=kinds[torch.arange(40) % 3], edge_index=edges, features=features)
    run = record(FedGCN(hops=1, rounds=1), graph)
    finding = finding_of(run, RowSpace(), ObserverSpec(("client:each",)))
    assert finding.status is Status.OK, finding.reason
    assert finding.value is not None and finding.control is not None
    assert finding.value >= finding.control
