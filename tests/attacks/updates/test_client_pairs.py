"""Attacks on client similarity: alike clients stand out, clients drawn alike do not, and defenses take it away."""

from __future__ import annotations

import ast
import dataclasses
from functools import cache

import pytest
import torch
from torch.nn.functional import one_hot

from fglaudit.attacking import run_attacks
from fglaudit.attacks.updates.returned_similarity import ReturnedSimilarity
from fglaudit.attacks.updates.share_similarity import ShareSimilarity
from fglaudit.attacks.updates.update_similarity import UpdateSimilarity
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.finding import Finding, Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.fedper_sage import FedPerSage
from fglaudit.protocols.baselines.gcfl_sage import GCFLSage
from fglaudit.protocols.baselines.update_clusters import WARM_UP
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedpub.fedpub import FedPub
from fglaudit.rng import derive
from fglaudit.scoring import score
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer

SAGE = FedAvgSage(hidden=32, rounds=3)
GCFL = GCFLSage(hidden=32, rounds=3)
PARTED = GCFLSage(hidden=16, rounds=WARM_UP + 4, largest_mean=1e3, smallest_norm=0)
PUB = FedPub(hidden=32, rounds=3)
SERVER_ALONE = Observer(parties=(SERVER,))
CLIENTS = 8


def graph_of(*, skewed: bool, seed: int = 0) -> FederatedGraph:
    """Return a graph of eight clients. Skewed ones have mostly one class, the same two by two, and rows that tell it;
    others all train on as many nodes of every class, and rows tell none."""
    graph = example_graph(nodes=40 * CLIENTS, features=32, clients=CLIENTS, classes=4, seed=seed)
    y = torch.randint(4, (graph.num_nodes,), generator=derive(seed, "labels"))
    for client, nodes in enumerate(graph.clients if skewed else ()):
        own = torch.rand(len(nodes), generator=derive(seed, "kinds", str(client))) < 0.7
        y[nodes] = torch.where(own, client // 2, y[nodes])
    words = one_hot(torch.arange(len(y)) % 20 + 10, 32)
    if skewed:
        return dataclasses.replace(graph, y=y, x=(one_hot(y, 32) + words).float())
    train = tuple(torch.arange(len(nodes)) < 16 for nodes in graph.clients)
    for nodes, chosen in zip(graph.clients, train, strict=True):
        y[nodes[chosen]] = torch.arange(16) % 4
    val = test = tuple(~chosen for chosen in train)
    return dataclasses.replace(graph, y=y, x=words.float(), train=train, val=val, test=test)


@cache
def trained(protocol: FederatedProtocol, *, skewed: bool = True, seed: int = 0) -> Run:
    return record(protocol, graph_of(skewed=skewed, seed=seed), seed=seed)


def found(run: Run, attack: Attack, *parties: str) -> Finding:
    """Return the finding of ``attack`` by these parties, scored against the truth, self-tests included."""
    observer = ObserverSpec(parties or ("server",))
    (measured,) = score(run_attacks(run.recording, [observer], [attack]), run.truth)
    return measured.finding


@pytest.mark.parametrize(
    ("protocol", "attack", "least"),
    [
        (SAGE, UpdateSimilarity(), 0.75),
        (SAGE, ShareSimilarity(), 0.75),
        (GCFL, UpdateSimilarity(), 0.75),
        (FedPerSage(hidden=32, rounds=3), UpdateSimilarity(), 0.75),
        (FedGCN(hops=1, rounds=3), UpdateSimilarity(), 0.75),
        (DistGAT(rounds=3), UpdateSimilarity(), 0.75),
        (PUB, ReturnedSimilarity(), 0.75),
    ],
)
def test_alike_clients_stand_out(protocol: FederatedProtocol, attack: Attack, least: float) -> None:
    finding = found(trained(protocol), attack)
    assert finding.status is Status.OK, finding.reason
    assert finding.quantity == "client-similarity" and finding.targets is not None
    assert 0 < finding.targets <= CLIENTS * (CLIENTS - 1) // 4, "half of the pairs at most"
    assert finding.value is not None and finding.control is not None
    assert finding.value > max(least, finding.control)


@pytest.mark.parametrize("attack", [UpdateSimilarity(), ShareSimilarity()])
def test_of_clients_that_train_alike_nothing_is_told(attack: Attack) -> None:
    values = [found(trained(SAGE, skewed=False, seed=seed), attack).value or 0.0 for seed in range(6)]
    assert abs(sum(values) / len(values) - 0.5) < 0.1, values


def test_the_same_model_is_the_same_cluster() -> None:
    """GCFL+ after its first parting: pairs within a cluster stand above all others, whatever labels they have."""
    run = trained(PARTED)
    (note,) = [note for note in run.recording.notes if f"round {WARM_UP + 1}:" in note]
    last = [note for note in run.recording.notes if "clusters of clients" in note][-1]
    sides = ast.literal_eval(last.partition(": ")[2].partition(": ")[2])
    assert len(sides) > 1 and note
    answer = ReturnedSimilarity().run(run.view(SERVER_ALONE), rng=derive(0, "attack"), device=CPU)
    cluster = {client: index for index, side in enumerate(sides) for client in side}
    one, other = (torch.tensor([cluster[k] for k in part.tolist()]) for part in answer.subjects.T)
    within = answer.estimate[one == other]
    assert bool((within > answer.estimate[one != other].max()).all()) and len(within)
    assert float(within.max() - within.min()) < 1e-9


def test_clients_see_whether_they_are_in_one_cluster_but_nothing_of_others() -> None:
    view = trained(PARTED).view(Observer(parties=(0, 1, 2)))
    assert "its own clients" in (ReturnedSimilarity().unsupported(view) or "")
    assert "averages" in (UpdateSimilarity().unsupported(view) or "")


def test_one_model_for_all_tells_nothing_and_pairs_take_three_clients() -> None:
    view = trained(SAGE).view(SERVER_ALONE)
    assert "one model to all" in (ReturnedSimilarity().unsupported(view) or "")
    few = record(SAGE, example_graph(clients=2)).view(SERVER_ALONE)
    for attack in (UpdateSimilarity(), ShareSimilarity()):
        assert "three clients at least; the observer sees uploads of 2" in (attack.unsupported(few) or "")
    few = record(PUB, example_graph(clients=2)).view(SERVER_ALONE)
    assert "returns to 2" in (ReturnedSimilarity().unsupported(few) or "")


def test_clients_that_are_sampled_are_compared_all_the_same() -> None:
    sampled = FedGCN(hops=0, rounds=12, participation=0.5)
    answer = UpdateSimilarity().run(
        record(sampled, graph_of(skewed=True)).view(SERVER_ALONE), rng=derive(0, "a"), device=CPU
    )
    assert len(answer.subjects) == CLIENTS * (CLIENTS - 1) // 2, "each of eight uploads in some of ten rounds"


def test_secure_aggregation_hides_pairs() -> None:
    hidden = record(FedGCN(hops=1, rounds=3), graph_of(skewed=True), SecureAggregation(on=("ModelUpdate",)))
    assert found(hidden, UpdateSimilarity()).status is Status.NOT_APPLICABLE


@pytest.mark.parametrize("attack", [UpdateSimilarity(), ShareSimilarity()])
def test_noise_lowers_what_is_told_and_is_allowed_for(attack: Attack) -> None:
    drowned = ClippedLaplace(clip=0.002, scale=0.05, on=("ModelUpdate",))
    clear, noisy = (found(run, attack) for run in (trained(GCFL), record(GCFL, graph_of(skewed=True), drowned)))
    assert clear.value is not None and noisy.value is not None and noisy.adapted == "yes"
    assert noisy.value < clear.value - 0.2
