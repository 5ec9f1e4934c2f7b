"""Defenses that know when they are asked again, or hide what they remember: no report may call them "held"."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.redteam import hostile_copies
from bench.redteam.hostile_copies import HONEST, KINDS, Remembers
from fglaudit.attacking import run_attacks
from fglaudit.facts import Additive, Fact, Field, Target
from fglaudit.finding import Finding
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record_training
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.scoring.score import score
from fglaudit.testing import example_graph
from fglaudit.view import Observer
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.observing.isolation import copies_itself, outside_state


def recorded(kind: str, seed: int = 0) -> tuple[Finding, set[Target]]:
    """Return what a server finds of the sums, and what is unstated."""
    hostile_copies._CALLED.clear()
    recording, truth = record_training(example_graph(), FedGCN(hops=1, rounds=2), Remembers(kind), seed=seed)
    server = ObserverSpec(("server",), topology=True)
    scored = score(run_attacks(recording, [server], [build("attack", "server-partial-sums", {})]), truth)
    return scored[0].finding, {about.target for about in truth.unstated}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_or_kept_from_copies_is_never_held(kind: str) -> None:
    row, unstated = recorded(kind)
    if kind.startswith("clip"):
        assert unstated == {Field("ModelUpdate", "vector", "up")}
    else:
        assert "Unstated" in row.adapted and not row.can_reassure


def test_a_payload_that_hides_something_is_open_whatever_attacks_the_suite_lists() -> None:
    recording, _ = record_training(example_graph(), FedGCN(hops=1, rounds=2), Remembers("clip-memory"), seed=0)
    state = next(state for state in recording.fields if (state.payload, state.observer) == ("ModelUpdate", "server"))
    assert state.state == "unexamined" and "not stated" in state.reason


@pytest.mark.parametrize("kind", HONEST)
def test_honest_sessions_that_remember_rows_are_believed(kind: str) -> None:
    for seed in range(3):
        assert recorded(kind, seed)[1] == set()


def test_who_asks_whether_it_is_itself_is_never_itself() -> None:
    graph, protocol = example_graph(), FedGCN(hops=1, rounds=1)
    defense = Remembers("id-aware")
    recording, truth = record_training(graph, protocol, defense, seed=0)
    first = next(iter(recording.view(Observer((SERVER,))).messages.of(NeighborSums))).payload.tensors()["sums"]
    public = defense.std * torch.randn(first.shape, generator=derive(9, "public"))
    assert truth.unstated == () and float((first - public).std()) > defense.std, "what is sent has noise of its own"


class _Plain(DefenseSession):
    def __init__(self, held: object = None) -> None:
        self.held = held


class _Reduced:
    def __reduce__(self) -> str:
        return "nothing"


class _Delegating:
    def __getattr__(self, name: str) -> object:
        if name == "__deepcopy__":
            return lambda memo: self
        raise AttributeError(name)


LIST: list[int] = []


@pytest.mark.parametrize("held", [_Reduced(), [{"a": (_Reduced(),)}], _Delegating()])
def test_classes_with_a_say_in_their_copies_are_found_wherever_they_are_held(held: object) -> None:
    assert copies_itself(_Plain(held)) is not None


@pytest.mark.parametrize("held", [torch.zeros(3), torch.Generator(), {"a": [1]}, torch.nn.Linear(2, 2), FedGCN()])
def test_known_classes_are_copied_as_usual(held: object) -> None:
    assert copies_itself(_Plain(held)) is None


def test_what_a_module_a_class_or_a_function_keeps_is_noticed() -> None:
    def function(kept: list[int] = []) -> list[int]:  # noqa: B006
        return kept

    session = _Plain(function)
    before = outside_state(session)
    assert outside_state(session) == before
    LIST.append(1)
    assert outside_state(session) != before
    before = outside_state(session)
    function().append(1)
    assert outside_state(session) != before
    before = outside_state(session)
    _Plain.seen = 1  # type: ignore[attr-defined]
    assert outside_state(session) != before
    del _Plain.seen  # type: ignore[attr-defined]


def test_a_session_that_refuses_other_rows_is_not_believed() -> None:
    class Refuses(DefenseSession):
        def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
            if not bool((client.x.diff(dim=0) >= 0).all()):
                raise ValueError("rows are sorted")
            return client

        def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
            sent = batch.payload.tensors()
            sent["sums"] = sent["sums"] + torch.randn(sent["sums"].shape, generator=rng)
            return type(batch.payload).from_tensors(sent)

        def facts(self) -> tuple[Fact, ...]:
            return (Additive(Field("NeighborSums", "", "up"), "gaussian", 1.0),)

    graph = example_graph()
    client = replace(graph.client(0), x=graph.client(0).x.sort(0).values)
    sums = NeighborSums(torch.arange(40), torch.rand(40, 24, generator=derive(0, "sums")))
    batch = MessageBatch(0, torch.tensor([0]), torch.tensor([SERVER]), sums, torch.tensor([0, 40]))
    for prepared in (False, True):
        channel = RecordingChannel(Refuses(), 3, derive(0, "defense"))
        if prepared:
            channel.prepare(client)
        channel.send(batch)
        assert bool(channel.unstated) is prepared
