"""What a question needs of the whole run is made once, whoever is asked about."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.sums.row_presence import RowPresence
from fglaudit.finding import Status
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import quantity
from fglaudit.quantities.nodes.neighboring_clients import NeighboringClients
from fglaudit.rng import derive
from fglaudit.scoring.score import Scorer
from fglaudit.testing import record
from fglaudit.view import Observer


def test_inputs_of_first_layers_are_computed_once_for_all_observers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, compute = [], FedGCN.layer_inputs
    scorer = Scorer(record(FedGCN(hops=1, rounds=1)).truth)

    def counted(self: FedGCN, *arguments: Any) -> Any:
        calls.append(self)
        return compute(self, *arguments)

    monkeypatch.setattr(FedGCN, "layer_inputs", counted)
    first, second = scorer.asked("layer-inputs", [Observer(parties=(0,)), Observer(parties=(1,))], pooled=True)
    scorer.asked("layer-words", [Observer(parties=(SERVER,))], pooled=False)
    assert len(calls) == 1
    assert 0 not in first.subjects[:, 0] and 1 in first.subjects[:, 0]
    assert 1 not in second.subjects[:, 0] and 0 in second.subjects[:, 0]


def test_a_guess_scores_what_an_attack_of_the_same_rows_does() -> None:
    """A guess is one row again and again: matched or not, the score is the same."""
    run, observer = record(FedGCN(hops=1, rounds=1)), Observer(parties=(0,))
    (question,) = Scorer(run.truth).asked("layer-inputs", [observer], pooled=False)
    kind: Any = quantity("layer-inputs")
    guess = kind.guess(run.view(observer), question.subjects, derive(0))
    matched, alone = kind.score(question, dataclasses.replace(guess), guess), kind.score(question, guess, guess)
    assert torch.equal(matched.values, alone.values) and matched.columns == alone.columns


def test_pairs_of_clients_and_nodes_are_not_asked_about_where_no_attack_applies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 200 clients, each with a question of its own, they took 2.5 GB, to say that clients do not see uploads."""

    def refused(*_: Any) -> Any:
        raise AssertionError("a question was asked for nobody")

    run = record(FedGCN(hops=1, rounds=1))
    scorer = Scorer(run.truth)
    monkeypatch.setattr(NeighboringClients, "ask", refused)
    each = ObserverSpec(("client:each",))
    outputs = run_attacks(run.recording, [each], [RowPresence()], nothing_to_ask=scorer.nothing_to_ask)
    finding = scorer.measure(outputs[0]).finding
    assert finding.status is Status.NOT_APPLICABLE and "only the server and the wire" in finding.reason
