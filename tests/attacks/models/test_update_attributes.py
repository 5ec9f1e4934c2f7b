"""Sensitive entries from uploads, and the imputation that they are held against."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from drawn_masks import drawn_training
from scored_runs import finding_of, inferred, truth_about
from torch import Tensor

from fglaudit.adversary.priors.imputation import imputed
from fglaudit.attacking import unsuitable
from fglaudit.attacks.models.update_attributes import UpdateAttributes
from fglaudit.errors import FglauditError
from fglaudit.finding import Status
from fglaudit.graph import FeatureKind
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities.ranking import placements
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, record
from fglaudit.view import Auxiliary, Observer, PartialRows

PLAIN = FedGCN(hops=2, rounds=8, local_steps=1, learning_rate=0.5, weight_decay=0.0, dropout=0.0)
COLUMNS = (3, 5)
KNOWING = Observer(parties=(SERVER,), topology=True, auxiliary=0.9, sensitive=COLUMNS)


def _run(features: int = 100, **changes: object) -> Run:
    """Record with two columns that nothing else says anything of: coins."""
    graph = drawn_training(nodes=90, features=features)
    x = graph.x.clone()
    x[:, list(COLUMNS)] = (torch.rand(90, 2, generator=derive(0, "coins")) < 0.4).float()
    return record(dataclasses.replace(PLAIN, **changes), dataclasses.replace(graph, x=x))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain() -> Run:
    return _run()


def scored(run: Run) -> tuple[float, float]:
    """Return the AUC of the attack and of imputation."""
    kind, view = inferred("attributes"), run.view(KNOWING)
    asked = kind.ask(truth_about(run, KNOWING))
    assert not isinstance(asked, str)
    guess = kind.guess(view, asked.subjects, derive(0, "guess"))
    found = UpdateAttributes(rounds=8).run(view, rng=derive(0, "attack"), device=CPU)
    return kind.score(asked, found, guess).columns["auc"], kind.judge(asked, guess.estimate).columns["auc"]


def test_uploads_show_coins_that_imputation_cannot_know(plain: Run) -> None:
    found, guess = scored(plain)
    assert abs(guess - 0.5) < 0.15 and found > guess + 0.15, (found, guess)


def test_steps_of_adam_show_coins_too() -> None:
    found, guess = scored(_run(optimizer="adam", learning_rate=0.01))
    assert abs(guess - 0.5) < 0.15 and found > guess + 0.1, (found, guess)


def test_uploads_that_carry_no_gradient_show_none() -> None:
    """One step far below what float32 keeps of it: the answer is the imputation."""
    found, guess = scored(_run(rounds=1, learning_rate=1e-12))
    assert abs(found - guess) < 0.08


def test_the_view_lacks_the_sensitive_entries_and_nothing_else(plain: Run) -> None:
    view = plain.view(KNOWING)
    partial = view.partial
    assert partial is not None and not bool(partial.x[:, list(COLUMNS)].any())
    assert not bool(torch.isin(partial.nodes, view.auxiliary.nodes).any())
    assert len(partial.nodes) + len(view.auxiliary.nodes) == round(0.9 * 90)
    rest = [c for c in range(100) if c not in COLUMNS]
    assert torch.equal(partial.x[:, rest], plain.graph.x[partial.nodes][:, rest])
    assert torch.equal(partial.y, plain.graph.y[partial.nodes])


def test_imputation_reads_what_the_rest_says(plain: Run) -> None:
    """A sensitive column that repeats another is imputed from it; where it hangs on the label, from that."""
    view = plain.view(KNOWING)
    known, partial = view.auxiliary, view.partial
    assert partial is not None
    first, labelled = (lambda rows, y: rows[:, 0]), (lambda rows, y: (y == 0).to(rows))
    rules: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (first, labelled)
    for copied in rules:
        x = known.x.clone()
        x[:, 3] = copied(known.x, known.y)
        found = imputed(dataclasses.replace(view, auxiliary=Auxiliary(known.nodes, x, known.y))).values[:, 0]
        true = copied(partial.x, partial.y)
        assert float(placements(found[true > 0], found[true == 0]).mean().item()) > 0.97


def test_a_suite_s_row(plain: Run) -> None:
    share = {0.9: plain.view(Observer(parties=(SERVER,), auxiliary=0.9)).auxiliary}
    side = dataclasses.replace(plain.recording.side, auxiliary=share)
    run = dataclasses.replace(plain, recording=dataclasses.replace(plain.recording, side=side))
    asked = ObserverSpec(("server",), topology=True, auxiliary=0.9, sensitive=COLUMNS)
    found = finding_of(run, UpdateAttributes(rounds=8), asked)
    assert found.status is Status.OK and found.quantity == "attributes" and found.control_auc is not None
    assert found.observer_knowledge == "topology;auxiliary=0.9;sensitive=3+5" or asked.knowledge.endswith("=3+5")


def test_what_it_takes(plain: Run) -> None:
    whole = plain.view(dataclasses.replace(KNOWING, sensitive=()))
    assert "sensitive: [0]" in (unsuitable(UpdateAttributes(), whole) or "")
    view = plain.view(KNOWING)
    scaled = dataclasses.replace(view, public=dataclasses.replace(view.public, features=FeatureKind.SCALED_BINARY))
    assert "sum of 1" in (unsuitable(UpdateAttributes(), scaled) or "")
    kind, truth = inferred("attributes"), truth_about(plain, KNOWING)
    asked = kind.ask(dataclasses.replace(truth, partial=None))
    assert isinstance(asked, str) and "sensitive" in asked
    empty = dataclasses.replace(plain.graph, x=torch.zeros_like(plain.graph.x))
    assert isinstance(kind.ask(dataclasses.replace(truth, graph=empty)), str)
    with pytest.raises(FglauditError, match="0 to 99; got 100"):
        PartialRows.apart(view.auxiliary, (100,))
    with pytest.raises(FglauditError, match="ascending"):
        ObserverSpec(("server",), auxiliary=0.5, sensitive=(5, 3))
    with pytest.raises(FglauditError, match=r"auxiliary: 0\.5"):
        ObserverSpec(("server",), sensitive=(3,))
