"""Protocols of other authors that train otherwise where nobody counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from bench.redteam.protocol_lies import LargerAtFirst, LargerInTheRun
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.guarantees import Audit, Outcome
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record_training
from fglaudit.recording.trained_again import trained_again
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph
from fglaudit.wire.channel import RecordingChannel

GRAPH = example_graph()


def again(protocol: FedGCN) -> Audit | None:
    wires: list[RecordingChannel] = []

    def channel(*arguments: Any) -> RecordingChannel:
        wires.append(RecordingChannel(*arguments))
        return wires[-1]

    defense, context = Gaussian(epsilon=4.0), protocol.context(GRAPH)
    _, truth = record_training(GRAPH, protocol, defense, channel=channel)
    return trained_again(protocol, GRAPH, defense, context, truth.trained, wires[0], partial(derive, 0), CPU)


@pytest.mark.parametrize("kind", [LargerInTheRun, LargerAtFirst])
def test_a_second_training_that_ends_otherwise_is_told(kind: type[FedGCN]) -> None:
    LargerAtFirst.trainings.clear()
    audit = again(kind(hops=1, rounds=2))
    assert audit is not None and audit.outcome is Outcome.UNTESTED
    assert "a second training from the same seed has other weights" in audit.detail


def test_equal_trainings_are_not_told() -> None:
    assert again(FedGCN(hops=1, rounds=2)) is None
