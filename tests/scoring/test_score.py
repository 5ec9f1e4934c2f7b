"""Inferences, claims and nodes with several samples, from an attack's answer to the finding."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Finding, Status
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Attack, Inference, Planted, Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import ObserverTruth
from fglaudit.quantities.rows.claims import check_claims
from fglaudit.quantities.rows.features import with_guesses
from fglaudit.quantities.rows.game import Game
from fglaudit.quantities.rows.game import score as score_games
from fglaudit.recording import Kept, record_training
from fglaudit.rng import derive
from fglaudit.scoring import score
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer, View
from fglaudit.wire.channel import Keep
from fglaudit.wire.side_knowledge import draw_auxiliary

GRAPH = example_graph()
OBSERVER = ObserverSpec(("server",), auxiliary=0.2)


def attacked(attack: Attack, observer: ObserverSpec = OBSERVER) -> Finding:
    """Record, attack and score: what a suite does."""
    shares = (0.0, observer.auxiliary)
    recording, truth = record_training(GRAPH, FedGCN(hops=1, rounds=1), NoDefense(), keep=Kept(fractions=shares))
    (measured,) = score(run_attacks(recording, [observer], [attack]), truth)
    return measured.finding


@dataclass(frozen=True)
class LabelAttack(Attack):
    """Says what it is told to say about labels, on recorded and planted messages alike."""

    name: ClassVar[str] = "label-attack"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"

    cheats: bool = False
    blind: bool = False

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        nodes = torch.arange(view.public.num_nodes)
        batch = next(iter(view.messages.of(NeighborSums)))
        assert isinstance(batch.payload, NeighborSums)
        planted = len(batch.payload.sums) == len(nodes)
        labels = batch.payload.sums[:, 0].long() if planted and not self.blind else torch.zeros_like(nodes)
        if self.cheats and not planted:
            labels = GRAPH.y
        return Inference("labels", nodes, torch.nn.functional.one_hot(labels, view.public.num_classes).float())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        labels = torch.randint(view.public.num_classes, (view.public.num_nodes,), generator=rng)
        messages = _Planted(labels)
        return Planted(dataclasses.replace(view, messages=messages), labels, torch.arange(len(labels)))


@dataclass(frozen=True)
class _Planted:
    labels: torch.Tensor

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:

        nodes = torch.arange(len(self.labels))
        sums = self.labels.float()[:, None].expand(-1, GRAPH.num_features).contiguous()
        splits = torch.tensor([0, len(nodes)])
        yield MessageBatch(0, torch.tensor([0]), torch.tensor([SERVER]), NeighborSums(nodes, sums), splits)


def test_an_inference_becomes_a_finding_with_its_control() -> None:
    finding = attacked(LabelAttack())
    assert finding.status is Status.OK and finding.metric == "label_accuracy"
    known = draw_auxiliary(GRAPH, 0.2, 0).nodes
    strangers = torch.tensor([n for n in range(GRAPH.num_nodes) if n not in set(known.tolist())])
    assert finding.targets == len(strangers)
    assert finding.value == pytest.approx(float((GRAPH.y[strangers] == 0).double().mean()))
    assert finding.advantage == pytest.approx((finding.value - finding.control) / (1 - finding.control))  # type: ignore[operator]


def test_an_inference_that_reads_what_was_not_sent_is_broken() -> None:
    finding = attacked(LabelAttack(cheats=True))
    assert finding.status is Status.BROKEN_ATTACK and "noise" in finding.reason


def test_an_inference_that_misses_what_is_planted_is_broken() -> None:
    finding = attacked(LabelAttack(blind=True))
    assert finding.status is Status.BROKEN_ATTACK and "planted" in finding.reason


def test_what_is_not_asked_is_not_applicable_with_the_reason() -> None:
    everybody = ObserverSpec(("server", "client:0", "client:1", "client:2"))
    finding = attacked(LabelAttack(), everybody)
    assert finding.status is Status.NOT_APPLICABLE and "every label" in finding.reason


def several_samples(samples: int = 3) -> FederatedGraph:
    x = torch.randn(GRAPH.num_nodes, samples, 5, generator=derive(0, "samples"))
    return dataclasses.replace(GRAPH, x=x, features=FeatureKind.REAL)


def game_about(graph: FederatedGraph, observer: Observer) -> Game:
    return Game.of(ObserverTruth(graph, FedGCN(), observer, draw_auxiliary(graph, 0.0, 0), {}, False))


def test_rows_of_a_node_with_several_samples_are_matched_within_the_node() -> None:
    graph = several_samples()
    game = game_about(graph, Observer(parties=(0,)))
    nodes = torch.unique(game.targets)
    assert len(game.targets) == 3 * len(nodes) and torch.equal(game.truth.reshape(-1, 3, 5), graph.x[nodes])
    shuffled = graph.x[nodes][:, [2, 0, 1]].reshape(-1, 5)
    whole = Reconstruction(shuffled, nodes.repeat_interleave(3), torch.rand(len(shuffled), generator=derive(1)))
    assert score_games([game], [whole]).rows.exact_rate.mean() == 1.0
    swapped = Reconstruction(shuffled, nodes.roll(1).repeat_interleave(3), whole.confidence)
    assert score_games([game], [swapped]).rows.exact_rate.mean() == 0.0
    one_each = Reconstruction(graph.x[nodes][:, 1], nodes, torch.ones(len(nodes)))
    assert score_games([game], [one_each]).rows.exact_rate.mean() == pytest.approx(1 / 3)
    guess = Reconstruction(torch.zeros(len(game.targets), 5), game.targets, torch.zeros(len(game.targets)))
    completed = with_guesses(one_each, guess)
    assert torch.equal(torch.bincount(completed.nodes)[nodes], torch.full((len(nodes),), 3))


def test_claims_count_directions_found_and_rows_that_are_nobodys() -> None:
    graph = several_samples(1)
    graph = dataclasses.replace(graph, x=graph.x[:, 0])
    observer = Observer(parties=(0,))
    game = game_about(graph, observer)
    view = dataclasses.replace(record(FedGCN(hops=1, rounds=1), graph).view(observer))
    rows = torch.cat([-3 * game.truth[:4], torch.eye(5)[:2], graph.x[graph.clients[0]][:1], torch.eye(5)[2:]])
    claimed = torch.tensor([True] * 7 + [False] * 3)
    result = Reconstruction(rows, torch.full((10,), -1), torch.ones(10), claimed=claimed)
    checked = check_claims(result, game, view)
    columns = checked.columns()
    assert columns["direction_rate"] == pytest.approx(4 / len(game.targets))
    assert columns["false_claim_rate"] == pytest.approx(2 / 7)  # the observer's own row is neither found nor false
    silent = check_claims(dataclasses.replace(result, claimed=None), game, view)
    assert silent.columns()["false_claim_rate"] is None


@dataclass(frozen=True)
class Directions(Attack):
    """Returns every row, three times as long and without saying whose it is, of planted and recorded messages alike."""

    name: ClassVar[str] = "directions"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "direction_rate"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        batch = next(iter(view.messages.of(NeighborSums)))
        assert isinstance(batch.payload, NeighborSums)
        if len(batch.payload.sums) == view.public.num_nodes:  # the planted rows stand there as they are
            nodes = torch.arange(view.public.num_nodes)
            return Reconstruction(batch.payload.sums, nodes, torch.ones(len(nodes)))
        found = (
            GRAPH.x if bool((batch.payload.sums >= 0).all()) else GRAPH.x[:0]
        )  # sums below zero are the self-test's noise
        return Reconstruction(3 * found, torch.full((len(found),), -1), torch.ones(len(found)))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        rows = torch.randint(2, (view.public.num_nodes, view.public.num_features), generator=rng)
        nodes = torch.arange(view.public.num_nodes)
        return Planted(dataclasses.replace(view, messages=_PlantedRows(rows.float())), rows.float(), nodes)


@dataclass(frozen=True)
class _PlantedRows:
    rows: torch.Tensor

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        nodes = torch.arange(len(self.rows))
        yield MessageBatch(
            0, torch.tensor([0]), torch.tensor([SERVER]), NeighborSums(nodes, self.rows), torch.tensor([0, len(nodes)])
        )


def test_rows_found_up_to_a_factor_and_without_their_node_count_by_direction() -> None:
    finding = attacked(Directions())
    assert finding.metric == "direction_rate" and finding.status is Status.OK
    assert finding.value == finding.direction_rate == 1.0
    assert finding.exact_rate == finding.control_exact_rate  # by its own assignment it has nothing but the guess
    assert finding.claimed_rate is None


@dataclass(frozen=True)
class NearlyRight(Directions):
    """Knows every row but for one feature, whatever it is sent: no row is exact, and F1 is high even on noise."""

    name: ClassVar[str] = "nearly-right"
    metric: ClassVar[str] = "f1"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        found = super().run(view, rng=rng, device=device)
        if len(found.rows) and bool((found.nodes >= 0).all()):  # the planted rows
            return found
        rows = GRAPH.x.clone()
        rows[:, 0] = 1 - rows[:, 0]
        return Reconstruction(rows, torch.arange(GRAPH.num_nodes), torch.ones(GRAPH.num_nodes))


@dataclass(frozen=True)
class KnowsOne(Directions):
    """Knows the row of one node: whatever it is sent, or from what was recorded."""

    name: ClassVar[str] = "knows-one"
    metric: ClassVar[str] = "exact_rate"
    always: bool = False

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        found = super().run(view, rng=rng, device=device)
        if len(found.rows) and bool((found.nodes >= 0).all()):  # the planted rows
            return found
        known = draw_auxiliary(GRAPH, 0.2, 0).nodes
        counts = torch.unique(GRAPH.x, dim=0, return_inverse=True, return_counts=True)
        alone = (counts[2][counts[1]] == 1) & GRAPH.x.any(1)
        alone[known] = False
        node = alone.nonzero()[:1, 0]
        told = GRAPH.x[node] if self.always or len(found.rows) else torch.zeros(1, GRAPH.num_features)
        return Reconstruction(told, node, torch.ones(1))


@pytest.mark.parametrize(("always", "counted"), [(False, 1), (True, 0)])
def test_a_row_that_an_attack_has_without_messages_is_none_that_they_told(always: bool, counted: int) -> None:
    finding = attacked(KnowsOne(always=always))
    assert finding.exact_rate is not None and finding.exact_rate > (finding.control_exact_rate or 0)
    assert finding.unique_exact == counted


def test_an_attack_that_beats_its_control_on_noise_without_an_exact_row_is_broken() -> None:
    finding = attacked(NearlyRight())
    assert finding.metric == "f1" and finding.exact_rate == 0.0
    assert finding.status is Status.BROKEN_ATTACK and "on every draw of noise" in finding.reason


def test_the_worst_client_stands_beside_the_mean() -> None:
    finding = attacked(LabelAttack())
    assert finding.worst_client is not None and finding.advantage is not None
    assert finding.worst_client >= finding.advantage
    assert finding.interval == "range"  # three clients


@dataclass(frozen=True)
class TwoRounds(LabelAttack):
    """Reads the models of the first two rounds."""

    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    first_rounds: ClassVar[int | None] = 2


def test_a_recorder_keeps_the_rounds_that_some_attack_reads() -> None:
    server = Observer(parties=(SERVER,), auxiliary=0.2)
    keep = Keep.for_attacks([server], [TwoRounds()])
    assert [keep.wants(ModelUpdate, round) for round in (0, 2, 3)] == [True, True, False]
    assert not keep.wants(NeighborSums)
    both = Keep.for_attacks([server], [TwoRounds(), LabelAttack()])
    assert both.wants(NeighborSums, 99) and not both.wants(ModelUpdate, 3)
    assert Keep().wants(ModelUpdate, 99)


@dataclass(frozen=True)
class SealedRounds(TwoRounds):
    """Reads nine rounds of models where clients send them sealed."""

    first_rounds: ClassVar[int | None] = 9
    sealed_only: ClassVar[bool] = True


def test_rounds_that_are_read_sealed_are_kept_where_they_are_sealed() -> None:
    keep = Keep.for_attacks([Observer(parties=(SERVER,))], [TwoRounds(), SealedRounds()])
    assert [keep.wants(ModelUpdate, round) for round in (2, 3)] == [True, False]
    assert [keep.wants(ModelUpdate, round, sealed=True) for round in (2, 3, 9, 10)] == [True, True, True, False]
