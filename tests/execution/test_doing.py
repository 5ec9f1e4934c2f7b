"""What is said of a cell whose training is over: which attack or audit runs."""

from __future__ import annotations

import pytest
from execution_runs import suite

from fglaudit.doing import tell
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
