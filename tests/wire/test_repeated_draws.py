"""Many draws of one message are looked at in the run that is judged alone, and change nothing of what is sent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.empirical import whole_training
from fglaudit.empirical.whole_training import whole_training_audit
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit
from fglaudit.payloads import ModelUpdate, NeighborSums
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.from_facts import account
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.observing import call_replay, repeated_draws
from fglaudit.wire.rehearsal import RehearsedChannel, UnwatchedChannel, rehearsal

PROTOCOL, DEFENSE = FedGCN(hops=1, rounds=1), Gaussian(epsilon=2.0)
COUNTED = record(PROTOCOL, example_graph(), DEFENSE).channel.counted
UNJUDGED: tuple[type[RecordingChannel], ...] = (whole_training._Listening, RehearsedChannel, UnwatchedChannel)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Take every defense for somebody else's; holds one entry for every look at many draws."""
    found: list[int] = []

    def counted(*arguments: object) -> object:
        found.append(1)
        return repeated_draws.of_few(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(call_replay, "is_foreign", lambda session: True)
    monkeypatch.setattr(call_replay, "of_few", counted)
    monkeypatch.setattr(whole_training, "CANARIES", 60)  # one training, or two
    return found


def audited(graph: FederatedGraph) -> Audit:
    session = DEFENSE.bind(PROTOCOL.context(graph))
    accounted = account(PROTOCOL.context(graph), session.facts(), session.guarantee(), COUNTED)
    assert isinstance(accounted, Accounted)
    return whole_training_audit(PROTOCOL, graph, DEFENSE, accounted, seed=0, device=CPU)


def rehearsed(graph: FederatedGraph) -> list[Tensor]:
    """Return what a rehearsal sends and what a shadow model becomes."""
    public = rehearsal(PROTOCOL, DEFENSE)
    settings = {"rng": derive(0, "attacker"), "device": CPU, "defended": True}
    messages, _ = public["rehearse"](graph, Observer(wire=True), [NeighborSums, ModelUpdate], **settings)
    sent = [v for kind in (NeighborSums, ModelUpdate) for b in messages.of(kind) for v in b.payload.tensors().values()]
    return [*sent, public["fit"](graph, **settings).accuracy_global]


def test_the_run_that_is_judged_looks_at_them(looks: list[int]) -> None:
    record(PROTOCOL, example_graph(), DEFENSE)
    assert looks


def test_what_nobody_judges_is_the_same_without(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = example_graph()
    judged, sent = audited(graph), rehearsed(graph)
    assert not looks
    for channel in UNJUDGED:
        monkeypatch.setattr(channel, "many_draws", True)
    assert audited(graph) == judged and looks
    assert all(torch.equal(one, other) for one, other in zip(sent, rehearsed(graph), strict=True))


def test_later_calls_are_looked_at_too_and_none_is_foreseen() -> None:
    asked = call_replay.CallReplay(DEFENSE.bind(PROTOCOL.context(example_graph())))
    shares = []
    for number in (1, 2, 8):
        asked._asked = number
        looks = [asked._looks_again(derive(seed, "looks", number)) for seed in range(400)]
        shares.append(sum(looks) / len(looks))
    assert shares[0] == 1
    assert abs(shares[1] - 1 / 2) < 0.1
    assert abs(shares[2] - 1 / 8) < 0.08
