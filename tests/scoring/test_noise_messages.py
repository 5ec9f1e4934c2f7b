"""Messages of noise carry nothing, not even about each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from scored_runs import BLANK, game_of

from fglaudit.attacking import run_attacks
from fglaudit.attacks.sums.row_presence import RowPresence
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Status
from fglaudit.graph import canonical_edges
from fglaudit.interfaces import Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, Latents, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import Attempt
from fglaudit.recording import record_training
from fglaudit.rng import derive
from fglaudit.scoring import Output, score
from fglaudit.scoring.selftest import BlindViews, NoiseMessages, NoiseRuns, on_noise
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View

USERS, WIDTH = 40, 8


@dataclass(frozen=True)
class Sent:
    """Latents [N, D] of all users, and weights [D, N] in one vector, all of the same spread."""

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        everybody, server = torch.arange(USERS), torch.full((USERS,), SERVER)
        values = torch.linspace(-1, 1, USERS * WIDTH)
        if payload is Latents:
            yield MessageBatch(0, everybody, server, Latents(values.reshape(USERS, WIDTH)))
        if payload is ModelUpdate:
            yield MessageBatch(0, server[:1], everybody[:1], ModelUpdate(values[None]))


def test_two_payloads_are_not_the_same_noise() -> None:
    """If they were, a user's latents would be a column of the weights: a row with one feature, in plain sight."""
    noise = NoiseMessages(Sent(), seed=3)
    (latents,), (weights,) = noise.of(Latents), noise.of(ModelUpdate)
    first, second = (next(iter(batch.payload.tensors().values())).flatten() for batch in (latents, weights))
    assert len(first) == len(second) == USERS * WIDTH
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.3
    (again,) = noise.of(Latents)
    assert torch.equal(next(iter(again.payload.tensors().values())).flatten(), first)


@dataclass(frozen=True)
class Returned:
    """One model [D] that the server returns to everybody, opened by each: as many copies."""

    model: torch.Tensor

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        everybody, server = torch.arange(USERS), torch.full((USERS,), SERVER)
        yield MessageBatch(1, server, everybody, ModelUpdate(self.model.repeat(USERS, 1)))


def test_one_number_for_everybody_stays_a_number() -> None:
    (batch,) = NoiseMessages(Returned(torch.tensor([0.25])), seed=3).of(ModelUpdate)
    assert bool((next(iter(batch.payload.tensors().values())) == 0.25).all())


def test_what_everybody_receives_alike_is_alike_in_noise() -> None:
    """If it were not, what clients send would differ by what they had received, and all their messages be linked."""
    model = torch.linspace(-1, 1, WIDTH)
    (batch,) = NoiseMessages(Returned(model), seed=3).of(ModelUpdate)
    values = next(iter(batch.payload.tensors().values()))
    assert values.shape == (USERS, WIDTH)
    assert bool((values == values[0]).all()) and not torch.equal(values[0], model)


def test_row_presence_is_whole_on_a_star_whose_hub_a_client_holds() -> None:
    """The hub's client gets the rows of all nodes: their number alone told it from the others, in noise too."""
    graph = example_graph()
    leaves = torch.arange(1, graph.num_nodes)
    star = canonical_edges(torch.stack([torch.zeros_like(leaves), leaves]), graph.num_nodes)
    recording, truth = record_training(replace(graph, edge_index=star), FedGCN(rounds=1), NoDefense())
    (measured,) = score(run_attacks(recording, [ObserverSpec(("server",))], [RowPresence()]), truth)
    assert measured.finding.status is Status.OK, measured.finding.reason
    assert measured.finding.value == 1.0


def test_views_of_noise_are_shared_until_the_next_one() -> None:
    graph = example_graph()
    view = record_training(graph, FedGCN(rounds=1), NoDefense())[0].view(Observer(parties=(0,)))
    blind = BlindViews()
    first = blind.of(view, 0, 0, seed=1)
    assert blind.of(view, 0, 0, seed=2) is first
    for other in (blind.of(view, 1, 0, seed=3), blind.of(view, 1, graph.num_nodes, seed=4)):
        assert other is not first
    sent = [list(v.messages.of(NeighborSums)) for v in (first, blind.of(view, 0, 0, seed=1))]
    for once, again in zip(*sent, strict=True):
        for one, same in zip(once.payload.tensors().values(), again.payload.tensors().values(), strict=True):
            assert torch.equal(one, same)


@pytest.mark.parametrize(("lucky", "broken"), [(4, False), (5, True), (9, True)])
def test_an_attack_is_broken_that_beats_its_control_on_five_draws_of_noise(lucky: int, broken: bool) -> None:
    run = record(FedGCN(hops=1, rounds=1))
    observer = Observer(parties=(0,), degrees=True)
    game, view = game_of(run, observer), run.view(observer)
    nothing = Reconstruction(torch.zeros_like(game.truth), game.targets, torch.zeros(len(game.targets)))
    drawn = 0

    @dataclass(frozen=True)
    class Lucky(RowSpace):
        """Has the truth on its first draws."""

        def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Any:
            nonlocal drawn
            drawn += 1
            return replace(nothing, rows=game.truth) if drawn <= lucky else nothing

    attack = Lucky()
    output = Output(BLANK, attack, False, (view,), on_noise=NoiseRuns(attack, view, derive(0, "noise"), CPU))
    assert (on_noise(output, Attempt(view, game, None, nothing)).flaw is not None) is broken
    assert drawn == 5
