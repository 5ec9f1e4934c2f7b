"""Rows from updates: a factorisation worked by hand, trained models of two protocols, what rank and defenses allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fglaudit.adversary.uploads.means import EVERYBODY
from fglaudit.attacking import run_attacks
from fglaudit.attacks.updates.input_layer import input_changes
from fglaudit.attacks.updates.nonnegative_rows import nonnegative_rows
from fglaudit.attacks.updates.update_inversion import UpdateInversion
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.graph.minimum_neighborhood import MinimumNeighborhood
from fglaudit.defenses.noise.quantisation import Quantisation
from fglaudit.defenses.training.dp_fedavg import DpFedAvg
from fglaudit.federated.home_head import AtHome
from fglaudit.finding import Finding, Status
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Defense, Inference
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.quantities import quantity
from fglaudit.quantities.base import Question
from fglaudit.rng import derive
from fglaudit.scoring.score import Scorer
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.scoring.truth import GroundTruth
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer

ONE_STEP = {"hops": 1, "hidden": 64, "rounds": 1, "local_steps": 1, "dropout": 0.0}


def graph() -> FederatedGraph:
    """Return a graph whose clients train on few nodes, with words enough for every sum to have one of its own."""
    made = example_graph(nodes=48, features=160, clients=4)
    rng = derive(1, "rows")
    few = tuple(mask & (torch.arange(len(mask)) % 3 == 0) for mask in made.train)
    return replace(made, x=(torch.rand(48, 160, generator=rng) < 0.06).float(), train=few)


def across(graph: FederatedGraph) -> int:
    """Return how many edges into a client come from another one."""
    owner = graph.owner()
    return int((owner[graph.edge_index[0]] != owner[graph.edge_index[1]]).sum().item())


def finding(run: Run, attack: UpdateInversion, party: str = "server") -> Finding:
    """Return the scored finding of one observer."""
    scorer = Scorer(run.truth)
    [output] = run_attacks(run.recording, [ObserverSpec((party,))], [attack], nothing_to_ask=scorer.nothing_to_ask)
    return scorer.measure(output).finding


def test_edges_of_a_cone_worked_by_hand() -> None:
    """Rows (1, 0, 2, 0) and (0, 3, 1, 0) under gradients (1, -1) and (1, 1)."""
    gradient = torch.tensor([[1.0, -1.0, 0.0], [3.0, 3.0, 0.0], [3.0, -1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.double)
    found = nonnegative_rows(gradient, 1e-9)
    assert (found.rank, found.limit) == (2, 3)
    expected = torch.tensor([[0, 1, 1 / 3, 0], [0.5, 0, 1, 0]], dtype=torch.double)
    assert torch.allclose(found.rows[found.rows[:, 0].argsort()], expected)


def test_more_rows_than_the_rank_allows_are_not_found() -> None:
    rng = derive(0, "rank")
    rows = (torch.rand(6, 80, generator=rng) < 0.1).double()
    wide, narrow = torch.randn(6, 9, generator=rng).double(), torch.randn(6, 4, generator=rng).double()
    assert (nonnegative_rows(rows.T @ wide, 1e-9).rank, len(nonnegative_rows(rows.T @ wide, 1e-9).rows)) == (6, 6)
    short = nonnegative_rows(rows.T @ narrow, 1e-9)
    assert (short.rank, short.limit, len(short.rows)) == (4, 4, 0)


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({}, 0.8),
        ({"weight_decay": 0.05}, 0.8),
        ({"local_steps": 5, "dropout": 0.5}, 0.8),
        ({"aggregate": "counts"}, 0.8),
        ({"hops": 0}, 0.5),
    ],
)
def test_sums_of_fedgcn_are_found_whatever_the_steps(settings: dict[str, object], least: float) -> None:
    found = finding(record(FedGCN(**{**ONE_STEP, **settings}), graph()), UpdateInversion())  # type: ignore[arg-type]
    assert found.value is not None and found.value >= least and found.control == 0
    assert found.adapted == "yes"


def test_rounds_add_up_where_one_round_has_too_few_units() -> None:
    run = record(FedGCN(**{**ONE_STEP, "hidden": 2, "rounds": 8}), graph())  # type: ignore[arg-type]
    one, eight = (finding(run, UpdateInversion(rounds=rounds)).value or 0 for rounds in (1, 8))
    assert one < 0.5 < 0.7 < eight


@pytest.mark.parametrize("protocol", [FedGAT, DistGAT])
def test_rows_of_attention_are_found(protocol: type[FedGAT | DistGAT]) -> None:
    run = record(protocol(rounds=4, feature_dropout=0.0, dropout=0.0), graph())
    assert (finding(run, UpdateInversion()).value or 0) >= 0.5


@pytest.mark.parametrize("samples", [1, 3])
def test_rows_of_perceptrons_are_found(samples: int) -> None:
    """Each of the 24 nodes is a client with a sample or three, of which it trains on all."""
    made = example_graph(nodes=24, features=160, clients=24)
    x = (torch.rand(24, samples, 160, generator=derive(1, "rows")) < 0.06).float()
    mine = torch.ones(24, dtype=torch.bool)
    users = replace(
        made,
        x=x.squeeze(1) if samples == 1 else x,
        clients=tuple(torch.arange(24).unsqueeze(1)),
        train=tuple(mine.unsqueeze(1)),
        val=tuple(~mine.unsqueeze(1)),
        test=tuple(mine.unsqueeze(1)),
    )
    found = finding(record(FedMLP(rounds=1), users), UpdateInversion())
    assert found.value is not None and found.value >= 0.8 and found.targets == 24 * samples


@pytest.mark.parametrize("defense", [None, DropSingletons(), MinimumNeighborhood(fewest=3)])
def test_layer_inputs_are_what_the_first_layer_reads(defense: Defense | None) -> None:
    """The layer's own gradient, projected on the span of the stated rows, is all of it, over the edges left."""
    attention = (kind(rounds=1, feature_dropout=0.0) for kind in (FedGAT, DistGAT))
    at_home = (
        StructureOnly(hops=(2,), width=16, rounds=1),
        StructureOnly(hops=(2,), width=16, rounds=1, features_at_home="own-subgraph"),
        PrivateReports(hops=(2,), code_hops=(2,), width=16, encoder_rounds=1, rounds=1),
    )
    sums = FedGCN(**ONE_STEP), FedGCN(hops=2, hidden=64, rounds=1)  # type: ignore[arg-type]
    for protocol in (*sums, *attention, *at_home):
        run = record(protocol, graph(), defense)
        clients = run.truth.about([Observer((SERVER,))], False)[0].clients()
        assert (sum(c.boundary.shape[1] for c in clients) == across(run.graph)) == (defense is None)
        stated = protocol.layer_inputs(run.graph, clients)
        assert stated is not None
        for change in input_changes(run.view(Observer((SERVER,))), 1):
            rows = stated[1][stated[0] == change.client].double()
            inside = rows.T @ torch.linalg.lstsq(rows.T, change.change, driver="gelsd").solution
            assert (inside - change.change).norm() < 1e-4 * change.change.norm()


@pytest.mark.parametrize("home", ["own-row", "own-subgraph"])
def test_features_at_home_are_found_in_models(home: AtHome) -> None:
    """Public codes carry no feature; models do: rows of training nodes, of each client its own."""
    run = record(StructureOnly(hops=(2,), width=16, rounds=8, features_at_home=home), graph())
    found = finding(run, UpdateInversion())
    assert found.value is not None and found.value >= 0.8
    none = record(StructureOnly(hops=(2,), width=16, rounds=1, features_at_home="none"), graph())
    assert finding(none, UpdateInversion()).status is Status.NOT_APPLICABLE


def test_dropped_edges_change_the_rows_and_hide_none(tmp_path: Path) -> None:
    """What is asked for are the sums that were trained on, before and after the truth was saved."""
    protocol = FedGCN(**ONE_STEP)  # type: ignore[arg-type]
    run = record(protocol, graph(), MinimumNeighborhood(fewest=3))
    found = finding(run, UpdateInversion())
    assert found.adapted == "yes" and (found.value or 0) >= 0.8
    run.truth.save(tmp_path / "truth")
    again = replace(run, truth=GroundTruth.load(tmp_path / "truth", protocol))
    assert finding(again, UpdateInversion()).value == found.value
    whole = replace(run, truth=replace(run.truth, edges={}))
    assert (finding(whole, UpdateInversion()).value or 0) < (found.value or 0)


def test_the_global_models_show_rows_of_all_clients() -> None:
    """A client sees no upload of others; sums of models show rows without saying whose they are."""
    run = record(FedGCN(**{**ONE_STEP, "rounds": 8}), graph())  # type: ignore[arg-type]
    view = run.view(Observer((0,)))
    result = UpdateInversion().run(view, rng=derive(0), device=CPU)
    assert bool((result.subjects[:, 0] == EVERYBODY).all())
    assert (finding(run, UpdateInversion(), "client:0").value or 0) > 0.3


def test_client_level_privacy_leaves_nothing_and_next_to_no_noise_leaves_all() -> None:
    protocol = FedGCN(**{**ONE_STEP, "rounds": 2})  # type: ignore[arg-type]
    strong = DpFedAvg(epsilon=4, delta=1e-3, clip=0.5, trust="local")
    held = finding(record(protocol, graph(), strong), UpdateInversion())
    assert (held.exact_rate, held.advantage, held.adapted, held.status) == (0, 0, "yes", Status.OK)
    leaks = finding(record(protocol, graph(), strong.weakened(1e-3)), UpdateInversion())
    assert (held.cosine or 0) < 0.5 and (leaks.cosine or 0) > 0.95 and (leaks.exact_rate or 0) > 0.1
    bare = finding(record(protocol, graph()), UpdateInversion())
    assert (bare.value or 0) >= 0.8


def test_rows_that_noise_puts_just_out_of_tolerance_are_no_success_of_the_noise() -> None:
    """One training node per client, whose row an update shows: noise of a thousandth hides nothing of it."""
    made = example_graph(nodes=24, features=12, clients=8)
    one = tuple(torch.arange(len(mask)) == 0 for mask in made.train)
    rest = tuple(torch.arange(len(mask)) > 0 for mask in made.train)
    none = tuple(torch.zeros_like(mask) for mask in made.train)
    x = torch.randn(24, 12, generator=derive(3, "rows"))
    dense = replace(made, x=x, train=one, val=none, test=rest, features=FeatureKind.REAL)
    little = DpFedAvg(epsilon=3e6, delta=1e-5, clip=1.0, trust="local")
    found = finding(record(FedGCN(**{**ONE_STEP, "hops": 0}), dense, little), UpdateInversion())  # type: ignore[arg-type]
    assert (found.metric, found.exact_rate, found.adapted) == ("cosine", 0, "yes")
    assert (found.cosine or 0) > 0.6 and (found.advantage or 0) > 0.5


def test_secure_aggregation_leaves_the_sum_over_clients() -> None:
    run = record(FedGCN(**{**ONE_STEP, "rounds": 8}), graph(), SecureAggregation())  # type: ignore[arg-type]
    assert (finding(run, UpdateInversion()).value or 0) > 0.3


def test_coarse_levels_hide_what_fine_ones_show() -> None:
    protocol = FedGCN(**ONE_STEP)  # type: ignore[arg-type]
    coarse, fine = (
        finding(record(protocol, graph(), Quantisation(bits=bits, on=("ModelUpdate",))), UpdateInversion())
        for bits in (4, 16)
    )
    assert (coarse.adapted, fine.adapted) == ("yes", "yes")
    assert (coarse.exact_rate or 0) < 0.1 < 0.2 < (fine.exact_rate or 0)
    assert (coarse.cosine or 0) < 0.5 < 0.95 < (fine.cosine or 0)


def test_rows_are_matched_one_to_one_and_spare_ones_do_not_count() -> None:
    kind = quantity("layer-inputs")
    truth = torch.eye(3)
    question = Question(torch.tensor([[0, 0], [0, 1], [2, 0]]), truth, torch.zeros(3, dtype=torch.long))
    guess = Inference("layer-inputs", question.subjects, torch.ones(3, 3))

    def value(subjects: list[list[int]], rows: Tensor) -> list[float]:
        result = Inference("layer-inputs", torch.tensor(subjects), rows)
        scores = kind.score(question, result, guess)  # type: ignore[attr-defined]
        return [float(v) for v in scores.values]

    assert value([[0, 0], [0, 1], [2, 0]], 5 * truth) == [1, 1, 1]
    assert value([[0, 0], [0, 1], [0, 2]], truth.flip(0)) == [0, 1, 0]  # the third of two rows
    assert value([[0, 0], [0, 1], [2, 0]], truth[[0, 0, 1]]) == [1, 0, 0]
    assert value([[-1, 0], [-1, 1]], truth[[2, 0]]) == [1, 0, 1]


def test_refusals_name_what_is_in_the_way() -> None:
    observer = Observer((SERVER,))
    cases = {
        "adam": FedGCN(**{**ONE_STEP, "optimizer": "adam"}),  # type: ignore[arg-type]
        "drop features": FedGAT(rounds=1),
    }
    for words, protocol in cases.items():
        assert words in str(UpdateInversion().unsupported(record(protocol, graph()).view(observer)))


@pytest.mark.parametrize("features", [2, 3, 12])
def test_a_head_of_two_classes_passes_the_self_test(features: int) -> None:
    """One round's change of a layer of two outputs shows one row; two were planted there, which nothing can find."""
    data = example_graph(nodes=60, features=features, classes=2, clients=3)
    for protocol in (StructureOnly(rounds=1), FedGCN(hops=1, hidden=2, rounds=1)):
        view = record(protocol, data).view(Observer((SERVER,)))
        assert UpdateInversion().unsupported(view) is None
        assert planted_flaw(UpdateInversion(), view, derive(1, "narrow"), CPU) is None
    lone = record(FedGCN(hops=1, hidden=1, rounds=1), data).view(Observer((SERVER,)))
    assert "leaves no direction out" in str(UpdateInversion().unsupported(lone))
