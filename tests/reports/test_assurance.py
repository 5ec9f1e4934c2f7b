"""What a report says of protection: "private" only on a verified epsilon, and never from attacks that told nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import DEFENSES, OBSERVERS, PROTOCOLS, make_cell, page_of, page_words, store, texts

from fglaudit.finding import Status
from fglaudit.guarantees import Verdict, Word
from fglaudit.reports import write_report
from fglaudit.reports.answers import AnswerWord
from fglaudit.reports.labels import Labels
from fglaudit.reports.records import Run, load_run
from fglaudit.reports.summary import summarize
from fglaudit.reports.verdict import make_verdict
from fglaudit.reports.wording.assurance import assurance


def test_private_is_said_only_with_an_accounted_epsilon(tmp_path: Path) -> None:
    without = store(tmp_path / "without", [make_cell(p, d, 0) for p in PROTOCOLS for d in DEFENSES[:2]])
    for name, text in texts(without).items():
        assert not re.search(r"\bprivate(ly)?\b", text, re.IGNORECASE), name
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0)
    claimed = [replace(cell, findings=tuple(replace(f, epsilon_accounted=None) for f in cell.findings))]
    for name, text in texts(store(tmp_path / "claimed", claimed)).items():
        assert not re.search(r"\bprivate(ly)?\b", text, re.IGNORECASE), name
    accounted = store(tmp_path / "accounted", [make_cell(PROTOCOLS[0], DEFENSES[2], 0)])
    assert "Differentially private with accounted ε = 7.98" in texts(accounted)["report.html"]


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (Word.VERIFIED, "Verified: differentially private with accounted ε = 7.98"),
        (Word.CLAIMED, "Claimed by its author, not verified: audit shortened. No assurance."),
        (Word.REFUTED, "Refuted: audit shortened. No assurance."),
    ],
)
def test_private_is_said_of_verified_guarantees_alone(word: Word, words: str) -> None:
    judged = replace(
        make_cell(PROTOCOLS[0], DEFENSES[2], 0), verdict=Verdict(word, "audit shortened", epsilon=7.98, claimed=8.0)
    )
    said = assurance(summarize(Run("judged", (judged,), planned=True))[0])
    assert said.startswith(words)
    assert ("differentially private" in said.lower()) is (word is Word.VERIFIED)


def test_a_very_large_accounted_epsilon_is_no_ground(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0)
    folder = store(
        tmp_path / "run", [replace(cell, findings=tuple(replace(f, epsilon_accounted=64.0) for f in cell.findings))]
    )
    for name, text in texts(folder).items():
        assert not re.search(r"\bprivate(ly)?\b", text, re.IGNORECASE), name
    assert "An epsilon above 10 bounds nothing of practical use: no assurance." in page_of(folder).words


def test_an_epsilon_below_the_demonstrated_one_is_an_alarm_and_no_assurance(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0)
    last = replace(cell.findings[-1], epsilon_empirical=11.0)  # on one row only, and the last
    folder = store(tmp_path / "run", [replace(cell, findings=(*cell.findings[:-1], last))])
    report = texts(folder)["report.md"]
    assert "7.98 is below what an attack demonstrated: it shows at least 11" in report
    assert "private" not in report


def test_all_attacks_at_the_control_is_not_called_safe(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0, observers=[0], parties=45)
    words = page_words(store(tmp_path / "held", [cell]))
    assert "No attack here succeeded in the one training. That is not a guarantee." in words
    assert re.search(r"45 clusters \(clients x seeds\); to show that nothing leaks it takes 3\d at least", words)
    assert not re.search(r"\b(safe|secure|anonymous)\b", words, re.IGNORECASE)
    broken = replace(cell.findings[0], status=Status.BROKEN_ATTACK, reason="self-test failed")
    words = page_words(store(tmp_path / "broken", [replace(cell, findings=(broken, *cell.findings[1:]))]))
    assert "No attack here succeeded" not in words
    assert "No working attack here succeeded, but not every attack worked." in words


def test_attacks_that_did_not_apply_are_said_beside_the_one_that_did(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[1])
    idle = [
        replace(f, status=Status.NOT_APPLICABLE, reason="needs noise-free sums", advantage=None)
        for f in cell.findings[1:]
    ]
    words = page_words(store(tmp_path / "run", [replace(cell, findings=(cell.findings[0], *idle))]))
    assert "3 of 4 attacks not applicable" in words


def test_an_observer_that_no_attack_served_is_unknown(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[2], DEFENSES[0], 0, observers=[0])
    words = page_words(store(tmp_path / "run", [cell]))
    assert "Nothing was measured for this observer. Why: no node's features reach this observer." in words
    assert "What this observer learns is unknown." in words


def test_a_broken_attack_is_never_the_strongest(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[1])
    loud = replace(cell.findings[3], status=Status.BROKEN_ATTACK, reason="false proofs", value=1.0, advantage=1.0)
    [setting] = summarize(load_run(store(tmp_path / "run", [replace(cell, findings=(*cell.findings[:3], loud))])))
    strongest = setting.strongest(("client:each", ""))
    assert strongest is not None
    assert strongest.attack == "subset-sum"


HOSTILE = "<script>alert('x')</script><img src=x onerror=y>|`*_["


def test_inferences_stand_beside_the_features_and_never_instead_of_them(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0)
    labels = replace(
        cell.findings[0], attack="labels-from-sums", quantity="labels", metric="label_accuracy", value=0.97,
        control=0.5, advantage=0.94, advantage_low=0.9, advantage_high=0.96, tv_error=None,
    )  # fmt: skip
    folder = store(tmp_path / "run", [replace(cell, findings=(*cell.findings, labels))])
    write_report(folder)
    run = load_run(folder)
    settings = summarize(run)
    strongest = settings[0].strongest(OBSERVERS[0])
    assert strongest is not None and strongest.quantity == "features" and (strongest.advantage or 0) < 0.94
    server = next(
        item for item in make_verdict(run, settings, Labels.of(settings)).observers if item.observer == OBSERVERS[0]
    )
    assert "rows exact" in server.headline and re.search(r"It also infers 97\.0.% of the labels", server.detail)
    assert "labels-from-sums" in page_of(folder).words


def test_where_only_an_inference_succeeds_it_is_the_headline(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0)
    edges = replace(
        cell.findings[0], attack="edges-from-sums", quantity="edges", metric="auc", value=0.9, control=0.5,
        advantage=0.8, advantage_low=0.7, advantage_high=0.9,
    )  # fmt: skip
    folder = store(tmp_path / "run", [replace(cell, findings=(*cell.findings, edges))])
    run = load_run(folder)
    settings = summarize(run)
    server = next(
        item for item in make_verdict(run, settings, Labels.of(settings)).observers if item.observer == OBSERVERS[0]
    )
    assert server.word is AnswerWord.LEAKS and server.headline.startswith("Tells neighbours")


def test_a_public_seed_is_a_condition_of_every_promise_and_explained_once(tmp_path: Path) -> None:
    folder = store(tmp_path / "run", [make_cell(p, DEFENSES[2], 0) for p in PROTOCOLS[:2]])
    written = texts(folder)
    assert written["report.md"].count("Public seed: the noise protects nobody who knows it") == 1
    assert written["report.html"].count("Public seed: the noise protects nobody who knows it") == 1
    for setting in summarize(load_run(folder)):
        assert "To whoever does not know the public seed, all that is sent may change" in assurance(setting)
    secret = make_cell(PROTOCOLS[0], DEFENSES[2], 0)
    secret = replace(secret, description={**secret.description, "secret": True})
    assert "public seed" not in assurance(summarize(Run("secret", (secret,), planned=True))[0])
