"""Epsilon of labels that LPGNN sends: accounted, composed with that of rows, refuted where labels answer otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch

from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.empirical import label_responses
from fglaudit.empirical.judge import judge
from fglaudit.guarantees import FieldState, Outcome, Word
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.responses import response_matrix
from fglaudit.payloads import SERVER, ClassReports, LabelDistributions, MessageBatch, Payload, RawFeatures
from fglaudit.protocols.private import label_propagation
from fglaudit.protocols.private.lpgnn import LPGNN
from fglaudit.structure import Reports
from fglaudit.testing import CPU, example_graph, record

GRAPH = example_graph(nodes=150)
PROTOCOL = LPGNN(label_epsilon=2.0, rounds=2)


def labels_of(protocol: FederatedProtocol) -> FieldState:
    defense = MultiBit(epsilon=3.0)
    run = record(protocol, GRAPH, defense)
    counted, strange = run.channel.counted, run.truth.unstated
    verdict, fields = judge(protocol, GRAPH, defense, run.session, counted, strange, seed=0, device=CPU)
    assert verdict.word is Word.VERIFIED and verdict.epsilon == pytest.approx(3.0, rel=1e-6)
    (found,) = (state for state in fields if state.field == label_responses.LABELS)
    return found


def test_a_label_spends_its_epsilon_on_top_of_the_row() -> None:
    state = labels_of(PROTOCOL)
    assert (state.observer, state.payload, state.state) == ("server", "ClassReports", "covered")
    assert state.reason.startswith("epsilon 2 of a label, 1 k-ary response (verified: ")
    assert state.reason.endswith("epsilon 5 of a node's row and label together (verified)")


def test_what_could_not_be_tested_does_not_count_as_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_responses, "ENOUGH_POWER", 1.1)
    state = labels_of(PROTOCOL)
    assert state.state == "unexamined" and "(claimed: " in state.reason and state.reason.endswith("(claimed)")


def test_labels_in_the_clear_are_protected_by_nothing() -> None:
    assert labels_of(LPGNN(label_epsilon=0.0, rounds=2)).state == "nothing"


def audit(protocol: LPGNN, stated: Reports) -> tuple[Outcome, str]:
    context = protocol.context(GRAPH)
    found = label_responses.response_audit(protocol, GRAPH, MultiBit(), context, stated, seed=0, device=CPU)
    return found.outcome, found.detail


def test_answers_that_are_not_as_stated_are_refuted() -> None:
    stated = PROTOCOL.structure(GRAPH).get(Reports)
    assert stated is not None and audit(PROTOCOL, stated)[0] is Outcome.PASSED
    for keep in (stated.keep + 0.08, stated.keep - 0.08):
        outcome, words = audit(PROTOCOL, replace(stated, keep=keep))
        assert outcome is Outcome.REFUTED and "p " in words


def test_too_few_labels_show_nothing() -> None:
    protocol, few = LPGNN(label_epsilon=9.0, rounds=2), example_graph(nodes=12)
    stated = protocol.structure(few).get(Reports)
    assert stated is not None
    found = label_responses.response_audit(protocol, few, MultiBit(), protocol.context(few), stated, seed=0, device=CPU)
    assert found.outcome is Outcome.UNTESTED and found.power is not None and found.power < 0.9


def test_lies_that_prefer_a_class_or_come_together_are_refuted() -> None:
    stated = PROTOCOL.structure(GRAPH).get(Reports)
    assert stated is not None
    keep = stated.keep
    uneven = torch.tensor([[keep, 1 - keep, 0.0], [0.0, keep, 1 - keep], [1 - keep, 0.0, keep]])
    with mock.patch.object(label_propagation, "response_matrix", lambda epsilon, classes: uneven):
        assert audit(PROTOCOL, stated)[0] is Outcome.REFUTED
    draw = torch.multinomial

    def together(matrix: torch.Tensor, count: int, *, generator: torch.Generator) -> torch.Tensor:
        if matrix.dim() != 2 or matrix.shape[1] != 3:
            return draw(matrix, count, generator=generator)
        truth, lie = matrix.argmax(1), torch.rand((), generator=generator) >= keep
        return ((truth + int(lie)) % 3).unsqueeze(1)

    with mock.patch.object(torch, "multinomial", together):
        assert audit(PROTOCOL, stated)[0] is Outcome.REFUTED


class _Besides:
    """A channel through which true labels, fresh answers or counts of labels are sent besides."""

    def __init__(self, channel: Channel, how: str, y: torch.Tensor, rng: torch.Generator) -> None:
        self._channel, self._how, self._y, self._rng = channel, how, y, rng
        self._answers: MessageBatch | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send(self, batch: MessageBatch) -> Payload:
        arrived = self._channel.send(batch)
        if not isinstance(batch.payload, ClassReports):
            return arrived
        self._answers, true = batch, torch.nn.functional.one_hot(self._y[batch.payload.nodes], 3).float()
        if self._how == "true labels":
            self._channel.send(replace(batch, payload=replace(batch.payload, values=true)))
        if self._how == "counts":
            counts = torch.zeros(len(batch.senders), 3).index_add_(0, batch.entry_messages(), true)
            to = torch.full_like(batch.senders, SERVER)
            self._channel.send(MessageBatch(0, batch.senders, to, LabelDistributions(counts)))
        return arrived

    def round_done(self, round: int, rounds: int) -> None:
        answers = self._answers
        if self._how == "every round" and answers is not None and isinstance(answers.payload, ClassReports):
            matrix = response_matrix(2.0, 3)[self._y[answers.payload.nodes]]
            said = torch.multinomial(matrix, 1, generator=self._rng).squeeze(1)
            values = torch.nn.functional.one_hot(said, 3).float()
            self._channel.send(replace(answers, round=round, payload=replace(answers.payload, values=values)))
        self._channel.round_done(round, rounds)


@dataclass(frozen=True)
class MoreOfLabels(LPGNN):
    """Sends more of labels than one answer, as ``how`` says."""

    emits: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, ClassReports, LabelDistributions)
    how: str = ""

    def train(self, graph: Any, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        besides: Any = _Besides(channel, self.how, graph.y, torch.Generator().manual_seed(int(rng.initial_seed()) + 1))
        return super().train(graph, besides, rng=rng, device=device)


@pytest.mark.parametrize(
    ("how", "state", "words"),
    [
        ("true labels", "nothing", "epsilon 4 of a label, 2 k-ary responses (refuted: "),
        ("counts", "nothing", "(refuted: values of LabelDistributions from clients moves with labels, though"),
        ("every round", "unexamined", "epsilon 6 of a label, 3 k-ary responses (claimed: a label is answered 3 times"),
    ],
)
def test_labels_that_leave_more_than_once_are_not_covered_by_one_answer(how: str, state: str, words: str) -> None:
    found = labels_of(MoreOfLabels(label_epsilon=2.0, rounds=2, how=how))
    assert found.state == state and words in found.reason
