"""Attacks on FedGT's uploads: conformance, planted leaks, noise, and what they find on small runs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from scored_runs import inferred, truth_about
from small_protocols import TINY_GT

from fglaudit.adversary.default_planting import planted_for
from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.adversary.uploads.linkage import pseudonymous
from fglaudit.attacks.global_nodes.clipped_singles import unclipped
from fglaudit.attacks.global_nodes.clusters import cluster_weight
from fglaudit.attacks.global_nodes.global_node_centroids import GlobalNodeCentroids
from fglaudit.attacks.global_nodes.global_node_denoising import GlobalNodeDenoising
from fglaudit.attacks.global_nodes.global_node_labels import GlobalNodeLabels
from fglaudit.attacks.global_nodes.global_node_linkage import GlobalNodeLinkage
from fglaudit.attacks.global_nodes.global_node_membership import GlobalNodeMembership
from fglaudit.attacks.global_nodes.one_node_clusters import OneNodeClusters
from fglaudit.attacks.updates.absent_words import AbsentWords
from fglaudit.attacks.updates.update_labels import UpdateLabels
from fglaudit.attacks.updates.update_linkage import UpdateLinkage
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.facts import Additive
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.nn.online_clustering import update_centroids
from fglaudit.payloads import SERVER, GlobalNodes
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.quantities import ObserverTruth, Question, quantity
from fglaudit.rng import derive
from fglaudit.scoring.selftest import NoiseMessages
from fglaudit.shuffling import shuffled
from fglaudit.testing import Run, check_attack, example_graph, record
from fglaudit.view import Observer, View

CPU = torch.device("cpu")
SERVER_WITH_ROWS = Observer(parties=(SERVER,), auxiliary=0.4)
ATTACKS: tuple[Attack, ...] = (
    GlobalNodeCentroids(),
    GlobalNodeDenoising(),
    GlobalNodeLabels(),
    GlobalNodeLinkage(),
    GlobalNodeMembership(),
    UpdateLabels(),
    UpdateLinkage(),
    AbsentWords(),
    OneNodeClusters(),
)
SMALL = FedGT(
    layers=1, hidden=32, heads=2, feed_forward=32, neighbors=4, global_nodes=3, encoding=2, candidates=8, rounds=6
)
SINGLES = dataclasses.replace(SMALL, hidden=96, global_nodes=12, global_scale=0.01)
"""Many global nodes for few nodes: some clusters have a single one."""
INFERENCES = tuple(attack for attack in ATTACKS if type(attack).quantity != "features")


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    graph = example_graph(nodes=240, features=120, clients=4)
    noisy = ClippedLaplace(clip=0.002, scale=0.001, on=("GlobalNodes",))
    return {"none": record(SMALL, graph), "noisy": record(SMALL, graph, noisy)}


def ask(run: Run, view: View, name: str) -> Question:
    """Return the question that the observer of ``view`` is asked."""
    asked = inferred(name).ask(truth_about(run, view.observer))
    assert not isinstance(asked, str), asked
    return asked


def value(run: Run, view: View, attack: Attack) -> tuple[float, float]:
    """Return the attack's and the guess's mean score."""
    kind = inferred(type(attack).quantity)
    asked = ask(run, view, kind.name)
    result = attack.run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Inference)
    guess = kind.guess(view, asked.subjects, derive(0, "control"))
    scores = (kind.score(asked, r, guess) for r in (result, guess))
    found, control = (float(s.values.mean().item()) for s in scores)
    return found, control


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: type(a).name)
@pytest.mark.parametrize("defense", ["none", "noisy"])
def test_conformance(attack: Attack, defense: str, runs: dict[str, Run]) -> None:
    view = runs[defense].view(SERVER_WITH_ROWS)
    assert attack.unsupported(view) is None
    check_attack(attack, view)


@pytest.mark.parametrize("attack", INFERENCES, ids=lambda a: type(a).name)
def test_a_planted_leak_is_seen(attack: Attack, runs: dict[str, Run]) -> None:
    view = runs["none"].view(SERVER_WITH_ROWS)
    kind = inferred(type(attack).quantity)
    planted = planted_for(attack, view, derive(1, "plant"))
    result = attack.run(planted.view, rng=derive(2, "attack"), device=CPU)
    assert isinstance(result, Inference)
    question = kind.planted(planted)
    guess = kind.guess(planted.view, planted.nodes, derive(0, "control"))
    assert float(kind.score(question, result, guess).values.mean().item()) >= 0.95


@pytest.mark.parametrize("attack", INFERENCES, ids=lambda a: type(a).name)
def test_noise_says_nothing(attack: Attack, runs: dict[str, Run]) -> None:
    run = runs["none"]
    view = run.view(SERVER_WITH_ROWS)
    blind = dataclasses.replace(view, messages=NoiseMessages(view.messages, 5))
    found, control = value(run, blind, attack)
    spread = (
        0.15 if type(attack).quantity != "global-nodes" else 0.2
    )  # few subjects; noise keeps the mean of the messages
    assert found <= control + spread


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: type(a).name)
def test_a_client_sees_no_uploads_of_others(attack: Attack, runs: dict[str, Run]) -> None:
    reason = attack.unsupported(runs["none"].view(Observer(parties=(0,), auxiliary=0.4)))
    assert reason is not None and "upload" in reason


def test_global_nodes_without_noise_are_read_off(runs: dict[str, Run]) -> None:
    run = runs["none"]
    found, _ = value(run, run.view(Observer(parties=(SERVER,))), GlobalNodeDenoising())
    assert found == pytest.approx(1.0)


def test_cluster_weight_is_that_of_algorithm_1(runs: dict[str, Run]) -> None:
    view = runs["none"].view(SERVER_WITH_ROWS)
    rows, centroid = torch.ones(1, 60, 1), torch.zeros(1, 1, 1)
    counts = torch.ones(1, 1)
    for round in (1, 2, 3):
        moved, counts = update_centroids(rows, torch.ones(1, 60, dtype=torch.bool), centroid, counts, 0.9)
        assert cluster_weight(view, round, 1, 4) == pytest.approx(float(moved.item()), rel=1e-5)


def test_updates_are_linked_on_a_run(runs: dict[str, Run]) -> None:
    run = runs["none"]
    assert value(run, run.view(SERVER_WITH_ROWS), UpdateLinkage())[0] > 0.9


def test_single_rows_are_exact(runs: dict[str, Run]) -> None:
    attack, view = OneNodeClusters(), runs["none"].view(Observer(parties=(SERVER,)))
    planted = planted_for(attack, view, derive(0, "plant"))
    result = attack.run(planted.view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction) and result.claimed is not None
    claimed = result.rows[result.claimed]
    assert bool((claimed.unsqueeze(1) == planted.rows).all(2).any(1).all()), "no claim is wrong"


def test_refusals_name_what_is_missing(runs: dict[str, Run]) -> None:
    view = runs["none"].view(Observer(parties=(SERVER,)))
    assert "auxiliary" in (GlobalNodeLabels().unsupported(view) or "")
    assert "auxiliary" in (GlobalNodeMembership().unsupported(view) or "")
    public = dataclasses.replace(view.public, layout={"layers.0.weight": (4, 4)})
    assert "layout" in (UpdateLabels().unsupported(dataclasses.replace(view, public=public)) or "")


def test_global_nodes_as_narrow_as_the_encoding_show_no_features(runs: dict[str, Run]) -> None:
    narrow = dataclasses.replace(TINY_GT, hidden=8, encoding=8)
    view = record(narrow, runs["none"].graph).view(Observer(parties=(SERVER,)))
    assert "8 could be a node's positional encoding" in (OneNodeClusters().unsupported(view) or "")


def test_linkage_reads_no_senders(runs: dict[str, Run]) -> None:
    view = runs["none"].view(SERVER_WITH_ROWS)
    codes, values = next(pseudonymous(view, GlobalNodes, 1))
    first = next(b for b in view.messages.of(GlobalNodes) if int(b.senders[0].item()) != SERVER)
    payload = first.payload
    assert isinstance(payload, GlobalNodes)
    assert torch.equal(values, payload.values[shuffled(1, len(codes))])


@pytest.mark.parametrize("name", ["global-nodes", "linkage", "centroids"])
def test_the_truth_scores_one_and_the_guess_less(name: str, runs: dict[str, Run]) -> None:
    view = runs["noisy"].view(Observer(parties=(SERVER,)))
    asked, kind = ask(runs["noisy"], view, name), inferred(name)
    assert kind.judge(asked, asked.truth).values.mean() == pytest.approx(1)
    most = 0.98 if name == "centroids" else 0.5  # rows of this graph have few words that tell them apart
    guess = kind.guess(view, asked.subjects, derive(0, "control")).estimate
    assert float(kind.judge(asked, guess).values.mean()) <= most


def test_links_are_not_asked_of_clients_that_are_sampled_in_every_round() -> None:
    """Who uploads differs from round to round: codes would stand for other clients than the answer's."""
    sampled = FedGCN(hops=0, rounds=3, participation=0.5)
    view = record(sampled, example_graph(clients=4)).view(Observer(parties=(SERVER,)))
    assert "2 of 4 do in one" in (UpdateLinkage().unsupported(view) or "")


def test_linkage_pairs_are_those_of_the_shuffled_messages(runs: dict[str, Run]) -> None:
    run = runs["none"]
    asked = ask(run, run.view(Observer(parties=(SERVER,))), "linkage")
    clients = run.graph.num_clients
    for (first, second), same in zip(asked.subjects.tolist(), asked.truth.tolist(), strict=True):
        senders = [int(shuffled(code // clients, clients)[code % clients]) for code in (first, second)]
        assert same == (senders[0] == senders[1])


def test_linkage_has_limits(runs: dict[str, Run]) -> None:
    graph, observer = runs["none"].graph, Observer(parties=(SERVER,))
    view = runs["none"].view(observer)
    once = ObserverTruth(graph, FedGT(rounds=1), observer, view.auxiliary, {}, False)
    assert "single round" in str(quantity("linkage").ask(once))
    assert "no global nodes" in str(quantity("global-nodes").ask(once))


def test_centroids_are_the_mean_rows_of_clusters_after_the_tenth_round(runs: dict[str, Run]) -> None:
    run = runs["noisy"]
    asked = ask(run, run.view(Observer(parties=(SERVER,))), "centroids")
    last = run.trained.truth["clusters"][-1]  # these runs have six rounds
    found = {tuple(pair): row for pair, row in zip(asked.subjects.tolist(), asked.truth, strict=True)}
    for k, ids in enumerate(run.graph.clients):
        for cluster in range(3):
            members = [int(node) for place, node in enumerate(ids) if int(last[k, place]) == cluster]
            if len(members) >= 2:
                mean = sum(run.graph.x[node].double() for node in members) / len(members)
                torch.testing.assert_close(found.pop((k, cluster)), mean)
    assert not found


def test_mean_rows_are_found_beyond_the_guess() -> None:
    protocol = dataclasses.replace(SMALL, hidden=64, neighbors=16, global_nodes=4, candidates=32, global_scale=0.01)
    graph = example_graph(nodes=240, features=120, clients=4)
    run = record(protocol, graph)
    found, control = value(run, run.view(SERVER_WITH_ROWS), GlobalNodeCentroids())
    assert found > control + 0.02


def test_planted_mean_rows_are_found_to_rounding_where_a_guess_misses_them(runs: dict[str, Run]) -> None:
    view = runs["none"].view(SERVER_WITH_ROWS)
    planted = GlobalNodeCentroids().plant(view, rng=derive(1, "plant"))
    result = GlobalNodeCentroids().run(planted.view, rng=derive(0, "attack"), device=CPU)
    kind = inferred("centroids")
    question, guess = kind.planted(planted), kind.guess(planted.view, planted.nodes, derive(0, "control"))
    found, control = (float(kind.score(question, r, guess).values.mean().item()) for r in (result, guess))
    assert 1 - found < 0.1 * (1 - control)


@pytest.mark.parametrize("on", [("GlobalNodes",), ("GlobalNodes", "ModelUpdate")], ids=len)
def test_a_clip_by_the_l1_norm_leaves_the_prior(on: tuple[str, ...], runs: dict[str, Run]) -> None:
    run = record(runs["none"].protocol, runs["none"].graph, ClippedLaplace(norm="l1", on=on))
    attacks = [GlobalNodeLabels(), GlobalNodeCentroids(), *([UpdateLabels()] if len(on) == 2 else [])]
    for attack in attacks:
        found, control = value(run, run.view(SERVER_WITH_ROWS), attack)
        assert abs(found - control) < 0.05


def test_single_rows_are_found_where_the_codebook_starts_near_the_origin() -> None:
    protocol = dataclasses.replace(SINGLES, rounds=2)
    run = record(protocol, example_graph(nodes=80, features=60, clients=4))
    view = run.view(Observer(parties=(SERVER,)))
    result = OneNodeClusters().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction) and result.claimed is not None
    claimed = result.rows[result.claimed]
    assert len(claimed) >= 2
    assert bool((claimed.unsqueeze(1) == run.graph.x).all(2).any(1).all()), "no claim is wrong"


@pytest.mark.parametrize("auxiliary", [0.0, 0.3])
def test_single_rows_are_found_behind_a_clip_of_coordinates(auxiliary: float) -> None:
    """A coordinate that was clipped counts for little: about as many rows are found as where the clip cuts nothing."""
    protocol = dataclasses.replace(SINGLES, rounds=1)
    found = {}
    for bound in (0.05, 10.0):
        run = record(
            protocol,
            example_graph(nodes=80, features=60, clients=4),
            ClippedLaplace(clip=bound, scale=1e-4, on=("GlobalNodes",)),
        )
        view = run.view(Observer(parties=(SERVER,), auxiliary=auxiliary))
        assert all(OneNodeClusters().models(fact) for fact in view.public.facts)
        noise = tuple(fact for fact in view.public.facts if isinstance(fact, Additive))
        unmodelled = dataclasses.replace(view, public=dataclasses.replace(view.public, facts=noise))
        for name, seen in ((f"{bound}", view), (f"{bound} unmodelled", unmodelled)):
            result = OneNodeClusters().run(seen, rng=derive(0, "attack"), device=CPU)
            assert isinstance(result, Reconstruction) and result.claimed is not None and not bool(result.claimed.any())
            found[name] = int((result.rows[:, None] == run.graph.x).all(2).any(0).sum())
    assert found["0.05"] >= found["10.0"] - 1 >= 4
    assert found["0.05"] > found["0.05 unmodelled"]
    assert found["10.0"] == found["10.0 unmodelled"]


def test_a_clip_of_coordinates_is_undone_where_it_left_something() -> None:
    """Against draws: the error is as large as stated, small inside the bound and large outside."""
    rng = derive(0, "clip")
    mean, spread = torch.linspace(-2, 2, 9).double(), torch.full((9,), 0.5).double()
    mu = mean + spread * torch.randn(20000, 9, generator=rng).double()
    sent = mu.clamp(-1, 1) + 0.1 * torch.randn(mu.shape, generator=rng).double()
    zero = torch.zeros_like(mu)
    image = (mean.expand_as(mu), spread.square().expand_as(mu))
    undone, error = unclipped(zero, sent, torch.ones(len(mu), 1).double(), image, UploadClip(bound=1.0), 0.1)
    torch.testing.assert_close((undone - mu).mean(0), torch.zeros(9).double(), atol=0.05, rtol=0)
    torch.testing.assert_close((undone - mu).std(0), error[0], rtol=0.05, atol=0)
    assert float(error[0, 4]) < 0.2 < 1.0 < float(error[0, 0])
