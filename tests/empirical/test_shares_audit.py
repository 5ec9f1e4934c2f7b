"""The audit of noise that clients share out: honest shares pass, and shares that colluders can take off do not."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from wrapped_defense import Wrapped

from bench.redteam.planted import Broken
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.stack import Stack
from fglaudit.defenses.training.dp_fedavg import DpFedAvg, Trust
from fglaudit.empirical.judge import judge
from fglaudit.facts import Absent, Fact, Field
from fglaudit.guarantees import Audit, Outcome, Verdict
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph
from fglaudit.wire.channel import RecordingChannel

GRAPH = example_graph(clients=6)
PROTOCOL = FedGCN(hops=0, rounds=3, local_steps=1)


class OnMoreColluders(Broken):
    """Says that two more clients may collude than shares were made for."""

    def guarantee(self) -> Guarantee:
        promise = self.inner.guarantee()
        assert promise.sum_without is not None
        return dataclasses.replace(promise, sum_without=promise.sum_without + 2)


class Cancelling(Broken):
    """Every upload has as much noise as is stated, and half of the clients the opposite of the others' noise."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.start = torch.zeros(0)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        sent, given = self.inner.release(batch, rng), batch.payload
        if not isinstance(sent, ModelUpdate) or not isinstance(given, ModelUpdate):
            return sent
        if bool((batch.senders == SERVER).all()):
            self.start = sent.vector
            return sent
        change = given.vector - self.start[batch.senders]
        clipped = change / change.norm(dim=1, keepdim=True).clamp(min=1.0)
        noise = sent.vector - given.vector + change - clipped
        odd = (batch.senders % 2 == 1).nonzero().squeeze(1)
        noise[odd] = -noise[odd - 1]
        return ModelUpdate(self.start[batch.senders] + clipped + noise)


def shares(defense: Defense) -> tuple[Verdict, Audit | None]:
    session = defense.bind(PROTOCOL.context(GRAPH))
    channel = RecordingChannel(session, GRAPH.num_clients, derive(0, "defense"))
    PROTOCOL.train(GRAPH, channel, rng=derive(0, "train"), device=CPU)
    found, _ = judge(PROTOCOL, GRAPH, defense, session, channel.counted, channel.unstated, seed=0, device=CPU)
    return found, next((audit for audit in found.audits if audit.name == "shares"), None)


@pytest.mark.parametrize("colluding", [0, 2])
def test_honest_shares_pass(colluding: int) -> None:
    """Epsilon of the sum in closed form is the one that was asked for."""
    found, audit = shares(DpFedAvg(epsilon=4.0, trust="distributed", colluding=colluding))
    assert audit is not None and audit.outcome is Outcome.PASSED, found
    assert f"less the messages of {colluding} of 6 clients: epsilon 4 of 4" in audit.detail
    assert audit.power is not None and audit.power > 0.9


@pytest.mark.parametrize(
    ("around", "words"), [(OnMoreColluders, "is accounted from what is stated"), (Cancelling, "false alarms")]
)
def test_shares_that_do_not_suffice_are_refuted(around: type[Broken], words: str) -> None:
    _, audit = shares(Wrapped(DpFedAvg(epsilon=4.0, trust="distributed", colluding=2), around))
    assert audit is not None and audit.outcome is Outcome.REFUTED and words in audit.detail


@pytest.mark.parametrize("trust", ["local", "server"])
def test_nothing_is_said_where_nothing_is_promised_of_sums(trust: Trust) -> None:
    assert shares(DpFedAvg(trust=trust))[1] is None


class Thinned(Broken):
    """A third of the clients vanish in every round, and their shares with them."""

    def facts(self) -> tuple[Fact, ...]:
        return (*self.inner.facts(), Absent(Field("ModelUpdate", direction="up"), share=1 / 3))


def test_shares_of_clients_that_vanish_are_missing() -> None:
    _, audit = shares(Wrapped(DpFedAvg(epsilon=4.0, trust="distributed", colluding=1), Thinned))
    assert audit is not None and audit.outcome is Outcome.REFUTED and "of 2 of 6 clients" in audit.detail
    _, audit = shares(Wrapped(DpFedAvg(epsilon=4.0, trust="distributed", colluding=2), Thinned))
    assert audit is not None and audit.outcome is Outcome.PASSED


@pytest.mark.parametrize(("colluding", "stated"), [(1, False), (2, True)])
def test_dropouts_beside_shares_ask_for_as_many_spare_ones(colluding: int, stated: bool) -> None:
    noise = DpFedAvg(epsilon=4.0, trust="distributed", colluding=colluding)
    stack = Stack((noise, SecureAggregation(on=("ModelUpdate",), dropouts=1 / 3)))
    promise = stack.bind(PROTOCOL.context(GRAPH)).guarantee()
    assert (promise.epsilon_claimed == 4.0) is stated and (promise.epsilon_accounted is not None) is stated
    assert ("set colluding to 2 or more" in promise.mechanism) is not stated
