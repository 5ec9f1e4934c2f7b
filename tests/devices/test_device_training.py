"""Every protocol trains on a device: with the numbers of the CPU, and without waiting for it in its loops."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import pytest
import torch
from places import on_devices, place
from pretend_device import PRETEND, Traffic, pretending
from recordings import SETUPS, Setup

from fglaudit.defenses.none import NoDefense
from fglaudit.interfaces import Trained
from fglaudit.recording import Kept, record_training
from fglaudit.wire.channel import Keep

SLOW = ("fedgat-matrix", "fedgat-vector", "fedgat-merged")
CASES = [pytest.param(where, marks=pytest.mark.slow if where in SLOW else ()) for where in SETUPS]


def trained(setup: Setup, device: torch.device) -> Trained:
    """Train with every message recorded."""
    run = record_training(setup.graph(), setup.build(), setup.defense or NoDefense(), device=device)
    return run[1].trained


@on_devices
@pytest.mark.parametrize("where", CASES)
def test_training(where: str, where_to: str) -> None:
    there = place(where_to)
    on_cpu = trained(SETUPS[where], torch.device("cpu"))
    with there.used():
        found = trained(SETUPS[where], there.device)
    assert found.weights.keys() == on_cpu.weights.keys()
    assert all(weight.device.type == "cpu" and bool(weight.isfinite().all()) for weight in found.weights.values())
    assert found.accuracy.shape == on_cpu.accuracy.shape
    if there.exact:
        assert all(torch.equal(found.weights[name], on_cpu.weights[name]) for name in on_cpu.weights)
        assert torch.equal(found.accuracy_global, on_cpu.accuracy_global)


def per_round(setup: Setup, **changed: Any) -> list[int]:
    """Return how often host and device wait for each other in each round after the first, nothing recorded."""
    marks: list[Traffic] = []
    protocol = dataclasses.replace(setup.build(), rounds=5, **changed)  # type: ignore[type-var]
    with pretending() as traffic:

        def mark(round: int, rounds: int) -> None:
            marks.append(copy.copy(traffic))

        record_training(
            setup.graph(), protocol, NoDefense(), device=PRETEND, keep=Kept(messages=Keep({})), progress=mark
        )
    return [after.total() - before.total() for before, after in itertools.pairwise(marks)]


AT_MOST = 5
"""Transfers and waits of a round: for what a server samples, and for what some clients alone send."""


PHASES = {"private-reports": 2, "private-reports-bare": 2, "private-reports-pseudo": 3, "progap": 3}
PHASES |= {"gap": 2, "gap-codes": 2, "gap-noisy": 2}
"""Trainings one after the other in one run, by recording: between two of them something is looked at, once."""


@pytest.mark.parametrize("where", [pytest.param(w, marks=pytest.mark.slow if w in SLOW else ()) for w in SETUPS])
def test_loops_do_not_wait(where: str) -> None:
    """Every round crosses as often as every other, however many steps it has and however many rounds there are."""
    setup = SETUPS[where]
    if setup.defense is not None:
        setup = dataclasses.replace(setup, defense=None)
    first = per_round(setup)
    between = [count for count in first if count > AT_MOST]
    rounds = [count for count in first if count <= AT_MOST]
    assert len(between) == PHASES.get(where, 1) - 1 and len(rounds) >= 4, first
    # The last round of a protocol may have nothing to prepare for a next one.
    assert len(set(rounds[:-1])) == 1 and rounds[-1] <= rounds[0], first
    protocol = setup.build()
    for steps in ("local_steps", "local_epochs"):
        if hasattr(protocol, steps):
            assert per_round(setup, **{steps: getattr(protocol, steps) + 2}) == first, steps
