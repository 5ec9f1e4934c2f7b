"""The word for a guarantee: what honest defenses get, and what lies and breaks do not."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch

from fglaudit.context import Context
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.none import NoDefense
from fglaudit.empirical import judge as judging
from fglaudit.empirical.audits.counts import epsilon_audits
from fglaudit.empirical.fields import examined as examining
from fglaudit.empirical.fields.examined import FEW_PAIRS
from fglaudit.empirical.judge import judge
from fglaudit.empirical.replays.replaced import PAIRS
from fglaudit.empirical.verdict_word import verdict_of
from fglaudit.facts import Additive, Fact, Field, Scaled
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.guarantees import FieldState, Outcome, Verdict, Word
from fglaudit.interfaces import Channel, Defense, DefenseSession, FederatedProtocol, Guarantee, Trained
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation, epsilon_of, event_of
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import CPU, example_graph, record

SUMS = FedGCN(hops=1, rounds=2)
Change = Callable[["Wrapped", MessageBatch, torch.Generator], Payload]


class Wrapped(DefenseSession):
    """Gaussian noise with something else in its place."""

    def __init__(self, honest: DefenseSession, faulty: Faulty) -> None:
        self.honest, self.faulty = honest, faulty

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        if self.faulty.fault == "wider rows":
            prepared = self.honest.prepare(client, rng)
            return dataclasses.replace(prepared, x=3 * prepared.x)
        return self.honest.prepare(client, rng)

    def changes(self, payload: type[Payload]) -> bool:
        return self.honest.changes(payload)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if self.faulty.fault == "scaled" and isinstance(batch.payload, NeighborSums):
            sent = self.honest.release(batch, rng).tensors()
            up = not bool((batch.senders == SERVER).all())
            return NeighborSums(batch.payload.nodes, 4 * sent["sums"] if up else sent["sums"])
        if not isinstance(batch.payload, NeighborSums) or self.faulty.fault in (
            *("epsilon", "none", "wider rows", "words", "formula"),
        ):
            return self.honest.release(batch, rng)
        sums = self.honest.release(batch, torch.Generator().manual_seed(5)).tensors()["sums"] - batch.payload.sums
        size = batch.payload.sums.shape
        scale = next(fact.scale for fact in self.facts() if isinstance(fact, Additive))
        drawn = {
            "global": lambda: scale * torch.randn(size),
            "numpy": lambda: torch.from_numpy(np.random.default_rng().normal(0, scale, tuple(size))),
            "system": lambda: (
                scale
                * torch.randn(size, generator=torch.Generator().manual_seed(int.from_bytes(os.urandom(6), "little")))
            ),
            "constant": lambda: sums,
        }[self.faulty.fault]()
        return NeighborSums(batch.payload.nodes, batch.payload.sums + drawn.to(batch.payload.sums))

    def facts(self) -> tuple[Fact, ...]:
        if self.faulty.fault == "scaled":
            return (*self.honest.facts(), Scaled(Field("NeighborSums", "sums", "up"), factor=4.0))
        return self.honest.facts()

    def guarantee(self) -> Guarantee:
        promise = self.honest.guarantee()
        if self.faulty.fault == "words":
            return dataclasses.replace(promise, adjacency="one node with all its edges and its label removed")
        if self.faulty.fault == "formula":
            return dataclasses.replace(promise, epsilon_claimed=0.08)
        if self.faulty.fault != "epsilon":
            return promise
        return dataclasses.replace(promise, epsilon_claimed=1.0, epsilon_accounted=1.0)


@dataclass(frozen=True)
class Faulty(Gaussian):
    """Noise for ``epsilon``, with a ``fault``."""

    name: ClassVar[str] = "faulty"
    fault: str = "none"

    def bind(self, context: Context) -> DefenseSession:
        return Wrapped(super().bind(context), self)


@dataclass(frozen=True)
class Twice(FedGCN):
    """Sends its sums again, and states one release."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        return super().train(graph, cast(Channel, _Doubling(channel)), rng=rng, device=device)


class _Doubling:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.channel, name)

    def send(self, batch: MessageBatch) -> Payload:
        if isinstance(batch.payload, NeighborSums) and bool((batch.senders >= 0).all()):
            self.channel.send(dataclasses.replace(batch))
        return self.channel.send(batch)


@dataclass(frozen=True)
class Around(FedGCN):
    """Lets its models start from a number made of the rows as they were before the defense."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        return super().train(graph, cast(Channel, _Leaking(channel, float(graph.x.sum()))), rng=rng, device=device)


class _Leaking(_Doubling):
    def __init__(self, channel: Channel, secret: float) -> None:
        super().__init__(channel)
        self.secret = secret

    def send(self, batch: MessageBatch) -> Payload:
        if "vector" in batch.payload.tensors() and batch.round == 1:
            vector = batch.payload.tensors()["vector"] + self.secret
            return self.channel.send(dataclasses.replace(batch, payload=ModelUpdate(vector)))
        return self.channel.send(batch)


@pytest.fixture
def no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits by many replays have tests of their own, and take seconds."""
    monkeypatch.setattr(judging, "statistical", lambda *_, **__: ())


def judged(
    defense: Defense, protocol: FederatedProtocol = SUMS, *, quick: bool = False
) -> tuple[Verdict, tuple[FieldState, ...]]:
    run = record(protocol, example_graph(), defense)
    counted, unstated = run.channel.counted, run.truth.unstated
    return judge(protocol, run.graph, defense, run.session, counted, unstated, seed=0, device=CPU, quick=quick)


def outcome(verdict: Verdict, name: str) -> Outcome:
    return next(audit.outcome for audit in verdict.audits if audit.name == name)


@pytest.mark.slow
def test_an_honest_defense_is_verified() -> None:
    verdict, _ = judged(Gaussian(epsilon=2.0))
    assert verdict.word is Word.VERIFIED, verdict
    assert "noise too small by 1.5" in verdict.reason and verdict.epsilon == pytest.approx(2.0, rel=1e-3)


@pytest.mark.usefixtures("no_statistics")
@pytest.mark.parametrize(("numbers", "records"), [(None, PAIRS), (1, FEW_PAIRS)])
def test_how_many_records_are_replaced_follows_from_what_is_sent(
    monkeypatch: pytest.MonkeyPatch, numbers: int | None, records: int
) -> None:
    if numbers is not None:
        monkeypatch.setattr(examining, "MOST_NUMBERS", numbers)
    verdict, _ = judged(Gaussian(epsilon=2.0))
    said = next(audit.detail for audit in verdict.audits if audit.name == "sensitivity")
    assert said.startswith(f"{records} records replaced")


@pytest.mark.usefixtures("no_statistics")
def test_an_honest_defense_passes_every_audit() -> None:
    verdict, states = judged(Gaussian(epsilon=2.0))
    assert verdict.epsilon == pytest.approx(2.0, rel=1e-3) and verdict.claimed == 2.0
    assert all(audit.outcome is Outcome.PASSED for audit in verdict.audits), verdict.audits
    assert verdict.word is Word.CLAIMED and "trade-off curve was not tested" in verdict.reason
    assert verdict.covers == ("NeighborSums",) and "labels" in verdict.not_covered
    by_field = {(s.observer, s.payload, s.field): s.state for s in states}
    assert by_field["server", "NeighborSums", "sums"] == "covered"
    assert by_field["clients", "NeighborSums", "sums"] == "not seen to move"
    assert by_field["server", "NeighborSums", "presence"] == "not seen to move"


def test_nothing_promised() -> None:
    verdict, states = judged(NoDefense())
    assert verdict.word is Word.NONE and verdict.epsilon is None
    assert {s.state for s in states} == {"nothing"} and {s.payload for s in states} == {"NeighborSums", "ModelUpdate"}


def test_shortened() -> None:
    verdict, _ = judged(Gaussian(epsilon=2.0), quick=True)
    assert verdict.word is Word.CLAIMED and "not replayed, as asked" in verdict.reason
    assert verdict.epsilon == pytest.approx(2.0, rel=1e-3)


def test_an_epsilon_that_the_facts_do_not_give() -> None:
    verdict, _ = judged(Faulty(epsilon=8.0, fault="epsilon"), quick=True)
    assert verdict.word is Word.REFUTED and "states epsilon 1;" in verdict.reason
    assert verdict.claimed == 1.0 and verdict.epsilon == pytest.approx(8.0, rel=1e-3)


def test_a_smaller_epsilon_of_a_better_accountant_is_not_refuted_and_not_verified() -> None:
    """What random samples of losses hide is only bounded here."""
    exact = Accounted(8.0, 1e-5, "node", Relation.REPLACE, event_of("gaussian", 0.6), ())
    own = replace_epsilon(exact, epsilon_of(exact.event, 1e-5, Relation.REPLACE))
    bound = replace_epsilon(exact, 0.7 * own.epsilon)  # sampled: less than the event gives
    tighter = Guarantee(
        "noise", epsilon_accounted=0.5 * own.epsilon, delta=1e-5, unit="node", relation=Relation.REPLACE
    )
    assert own.exact and not bound.exact
    assert [a.outcome for a in epsilon_audits(tighter, own)] == [Outcome.REFUTED]
    (open_,) = epsilon_audits(tighter, bound)
    assert open_.outcome is Outcome.UNTESTED and "a better accountant may have less" in open_.detail
    assert verdict_of(tighter, bound, [open_]).word is Word.CLAIMED
    assert epsilon_audits(dataclasses.replace(tighter, epsilon_accounted=None), own) == ()


def replace_epsilon(accounted: Accounted, epsilon: float) -> Accounted:
    return dataclasses.replace(accounted, epsilon=epsilon)


def test_whoever_raises_in_an_audit_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object) -> None:
        raise RuntimeError("not in a replay")

    monkeypatch.setattr("fglaudit.empirical.audits.attempts._reach", raising)
    verdict, _ = judged(Gaussian(epsilon=4.0))
    assert verdict.word is Word.CLAIMED
    assert "reach could not be run: RuntimeError: not in a replay" in verdict.reason


def test_more_releases_than_stated() -> None:
    verdict, _ = judged(Gaussian(epsilon=4.0), Twice(hops=1, rounds=2), quick=True)
    assert verdict.word is Word.REFUTED and outcome(verdict, "releases") is Outcome.REFUTED
    assert "released 2 times, and 1 are stated" in verdict.reason
    assert verdict.epsilon is not None and verdict.epsilon > 5.5


@pytest.mark.usefixtures("no_statistics")
@pytest.mark.parametrize("source", ["global", "numpy", "system", "constant"])
def test_foreign_randomness(source: str) -> None:
    verdict, _ = judged(Faulty(epsilon=4.0, fault=source))
    assert verdict.word is not Word.VERIFIED and outcome(verdict, "foreign randomness") is Outcome.UNTESTED
    words = "does not come from the generator" if source == "constant" else "foreign randomness"
    assert any(words in audit.detail for audit in verdict.audits)


@pytest.mark.usefixtures("no_statistics")
def test_rows_longer_than_their_clip() -> None:
    verdict, _ = judged(Faulty(epsilon=4.0, fault="wider rows"))
    assert verdict.word is Word.REFUTED and outcome(verdict, "sensitivity") is Outcome.REFUTED
    assert outcome(verdict, "facts") is Outcome.UNTESTED


@pytest.mark.usefixtures("no_statistics")
def test_a_way_around_the_defense() -> None:
    verdict, states = judged(Gaussian(epsilon=4.0), Around(hops=1, rounds=2))
    assert verdict.word is Word.CLAIMED and "no stated mechanism covers" in verdict.reason
    moved = [s for s in states if s.state == "nothing"]
    assert ("server", "ModelUpdate", "vector") in {(s.observer, s.payload, s.field) for s in moved}


def test_what_is_hidden_is_said_in_the_words_of_who_accounted_it() -> None:
    """An author may call the row of one node a node with its edges."""
    recording = record(SUMS, defense=Faulty(epsilon=4.0, fault="words")).recording
    assert recording.verdict.adjacency == recording.guarantee.adjacency
    assert recording.guarantee.adjacency == "one node's features zeroed out; edges and labels public"


def test_a_smaller_epsilon_beside_the_one_that_is_verified_is_said_not_to_be() -> None:
    verdict = record(SUMS, defense=Faulty(epsilon=4.0, fault="formula"), empirical=True).recording.verdict
    assert verdict.word is Word.VERIFIED and verdict.claimed == 0.08
    assert "epsilon 4 accounted" in verdict.reason and "not verified: epsilon 0.08" in verdict.reason


def test_what_is_scaled_after_the_noise_hides_as_much() -> None:
    """With equal draws a record then moves a release by so much more, which was called a refuted epsilon."""
    verdict = record(SUMS, defense=Faulty(epsilon=4.0, fault="scaled"), empirical=True).recording.verdict
    assert verdict.word is Word.VERIFIED, verdict.reason
