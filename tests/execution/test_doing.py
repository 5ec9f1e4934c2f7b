"""What is said of a cell whose training is over: which attack or audit runs."""

from __future__ import annotations

import time

import pytest
import torch
from execution_runs import suite

import fglaudit
from fglaudit import doing
from fglaudit.doing import heard_by, tell
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.worker import Failure, Progress, Task, compute, phase
from fglaudit.execution.run_cell import run_cell


def _task(**changes: object) -> Task:
    return Task(suite(seeds=[0], **changes).cells()[0], "small", "cpu")


def test_attacks_and_audits_are_named_while_they_run() -> None:
    heard: list[Progress] = []
    noise = [{"name": "gaussian", "epsilon": 8}]
    compute(_task(attacks=["row-space", "update-shares"], defenses=noise), run_cell, heard.append)
    said = [phase(progress) for progress in heard if progress.round == progress.rounds]
    begun = ["auditing what gaussian promises", "attack update-shares by server", "attack row-space by client:each"]
    assert [text for text in dict.fromkeys(said) if text in begun] == begun
    assert "attack row-space by client:each: its self-test on a planted leak" in said


def test_what_runs_out_of_memory_is_named_by_its_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, progress: object = None, **__: object) -> None:
        assert callable(progress)
        progress(2, 2)
        tell("attack row-space by server")
        raise MemoryError

    outcome = compute(_task(), full, lambda progress: None)  # type: ignore[arg-type]
    assert isinstance(outcome, Failure) and "attack row-space by server" in outcome.reason


def test_nobody_needs_to_listen() -> None:
    tell("attack row-space by server")


def test_an_audit_from_python_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doing, "SECONDS", 0.0)
    graph = {
        "x": torch.eye(24),
        "y": torch.arange(24) % 2,
        "edge_index": torch.stack([torch.arange(23), torch.arange(1, 24)]),
    }
    heard: list[str] = []
    fglaudit.audit(
        graph,
        protocol={"name": "fedgcn", "rounds": 2},
        clients=3,
        attacks=["row-space"],
        seeds=[4],
        progress=heard.append,
    )
    assert heard[0].startswith("seed 4, 1 of 1: training (round ")
    assert "seed 4, 1 of 1: attack row-space by client:each" in heard
    with pytest.raises(FglauditError, match="progress=print"):
        fglaudit.audit(graph, progress=True)  # type: ignore[arg-type]


def test_what_begins_is_passed_on_at_once_and_rounds_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    told = doing.Announcer(heard.append)
    told.rounds(1, 9)
    now += doing.SECONDS + 1
    told.rounds(8, 9)
    told("an audit that takes long")
    told.rounds(9, 9)
    assert heard == ["training (round 8 of 9)", "an audit that takes long"]


def test_a_listener_that_raises_fails_no_attack() -> None:
    def closed(text: str) -> None:
        raise BrokenPipeError("pipe closed")

    told = doing.Announcer(closed)
    with pytest.warns(RuntimeWarning, match="BrokenPipeError: pipe closed; it is called no more"), heard_by(told):
        tell("attack row-space by server")
    tell("attack row-space by server")
