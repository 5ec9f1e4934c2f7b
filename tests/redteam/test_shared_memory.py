"""Copies of a session that is asked again share no memory, and none of them knows the run's own call."""

from __future__ import annotations

import array
import collections
import contextvars
import copy
import functools
import io
import itertools
import queue
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from bench.redteam import memory_faults
from bench.redteam.cases import FAMILIES, users
from bench.redteam.planted import FAULTS, Planted
from fglaudit.facts import Additive, Field
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums, Payload
from fglaudit.recording import record_training
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.observing.isolation import outside_state, shared

THREADS = threading.local()


def _numbers() -> Any:
    yield from range(10)


KEPT: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "an iterator": (iter([1, 2]), next),
    "a counter of calls": (itertools.count(), next),
    "a generator": (_numbers(), next),
    "random numbers": (random.Random(0), lambda held: held.random()),
    "numpy's random numbers": (np.random.default_rng(0), lambda held: held.random()),
    "a file in memory": (io.BytesIO(), lambda held: held.write(b"1")),
    "an array": (np.zeros(2), lambda held: held.put(0, 1)),
    "an array of the standard library": (array.array("i", [0]), lambda held: held.__setitem__(0, 1)),
    "other members of a set": ({1}, lambda held: (held.clear(), held.add(2))),
    "numbers under a tensor": (torch.zeros(2), lambda held: held.data.add_(1)),
    "a namespace": (types.SimpleNamespace(), lambda held: setattr(held, "seen", 1)),
    "a lock": (threading.Lock(), lambda held: held.acquire()),
    "an event": (threading.Event(), lambda held: held.set()),
    "a queue": (queue.SimpleQueue(), lambda held: held.put(1)),
    "a cache": (functools.lru_cache(len), lambda held: held(())),
    "a variable of a context": (contextvars.ContextVar("seen"), lambda held: held.set(1)),
    "what a thread keeps": (THREADS, lambda held: setattr(held, "seen", 1)),
    "a method": ([].append, lambda held: held(1)),
    "arguments": (functools.partial(max, [1]), lambda held: held.args[0].append(2)),
    "a deque": (collections.deque(), lambda held: held.append(1)),
}
PLUGIN = types.ModuleType("plugin_that_keeps")


class _Plain(DefenseSession):
    def __init__(self, held: object = None) -> None:
        self.held = held


@pytest.mark.parametrize("name", KEPT)
def test_whatever_a_module_keeps_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held, write = KEPT[name]
    monkeypatch.setitem(sys.modules, PLUGIN.__name__, PLUGIN)
    monkeypatch.setattr(_Plain, "__module__", PLUGIN.__name__)
    monkeypatch.setattr(PLUGIN, "held", held, raising=False)
    session = _Plain()
    before = outside_state(session)
    assert outside_state(session) == before
    write(held)
    assert outside_state(session) != before


@pytest.mark.parametrize("held", [[].append, functools.lru_cache(len), {"a": ([].append,)}])
def test_what_copies_have_in_common_is_found(held: object) -> None:
    session = _Plain(held)
    assert shared(session, copy.deepcopy(session)) is not None


@pytest.mark.parametrize("held", [torch.zeros(3), [1, (2,)], {"a": torch.Generator()}, torch.nn.Linear(2, 2), len, int])
def test_what_is_copied_is_no_memory(held: object) -> None:
    session = _Plain(held)
    assert shared(session, copy.deepcopy(session)) is None


@pytest.mark.parametrize("kind", [kind for kind, _ in memory_faults.BROKEN])
def test_a_session_that_tells_its_calls_apart_is_not_believed(kind: str) -> None:
    protocol, defense = FAMILIES["latents"].build()
    _, truth = record_training(users(), protocol, Planted(defense, FAULTS[kind]), seed=0)
    assert any(change.target == Field("Latents", "values", "up") for change in truth.unstated)


class _Noisy(DefenseSession):
    """Noise of one state of the generator, or of any, that everybody can draw; ``raised``: refuses to be looked at."""

    def __init__(self, state: bytes = b"", raised: bool = False) -> None:
        self.state, self.raised = state, raised

    def changes(self, payload: type[Payload]) -> bool:
        return payload is NeighborSums

    def facts(self) -> tuple[Additive, ...]:
        return (Additive(Field("NeighborSums", "sums", "up"), "gaussian", 1.0),)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        sent = batch.payload.tensors()
        if self.raised and torch._C._len_torch_dispatch_stack():
            raise RuntimeError("not here")
        if rng.get_state().numpy().tobytes() == self.state:
            rng = torch.Generator().manual_seed(3)
        sums = sent["sums"] + torch.randn(sent["sums"].shape, generator=rng)
        return type(batch.payload).from_tensors(sent | {"sums": sums})


@pytest.mark.parametrize("honest", [True, False])
def test_noise_of_the_runs_own_call_is_made_of_what_it_draws(honest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingChannel, "many_draws", False)
    channel = RecordingChannel(session := _Noisy(), 3, derive(0, "defense"))
    if not honest:
        session.state = channel._again.draws(derive(0, "defense")).get_state().numpy().tobytes()
    sums = NeighborSums(torch.arange(40), torch.rand(40, 24, generator=derive(0, "sums")))
    channel.send(MessageBatch(0, torch.tensor([0]), torch.tensor([SERVER]), sums, torch.tensor([0, 40])))
    told = [change.why for change in channel.unstated]
    assert (told == []) if honest else ("does not come from what is drawn" in told[0])


def test_who_refuses_to_be_looked_at_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingChannel, "many_draws", False)
    channel = RecordingChannel(_Noisy(raised=True), 3, derive(0, "defense"))
    sums = NeighborSums(torch.arange(40), torch.rand(40, 24, generator=derive(0, "sums")))
    channel.send(MessageBatch(0, torch.tensor([0]), torch.tensor([SERVER]), sums, torch.tensor([0, 40])))
    assert "cannot be called where it is seen" in channel.unstated[0].why
