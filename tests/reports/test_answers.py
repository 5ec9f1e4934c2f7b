"""One word per setting, observer and quantity: when it is leaks, held, not shown or not tested, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import DEFENSES, PROTOCOLS, make_cell, store

from fglaudit import registry
from fglaudit.attacks import ATTACKS
from fglaudit.empirical.fields.states import after_unstated
from fglaudit.facts import Field, Unstated
from fglaudit.finding import RAISED, Cause, CellRecord, Status
from fglaudit.guarantees import FieldState, Protection
from fglaudit.reports.answers import Answer, AnswerWord, answers
from fglaudit.reports.attack_quantity import attack_quantity
from fglaudit.reports.labels import Labels
from fglaudit.reports.next_steps import next_steps
from fglaudit.reports.records import load_run
from fglaudit.reports.summary import summarize
from fglaudit.reports.verdict import make_verdict
from fglaudit.scoring.metrics import metric_interval, read_clusters


def with_rows(
    attacks: dict[str, Sequence[float]], *, seed: int = 0, targets: int = 60, **columns: object
) -> CellRecord:
    """A record of the server's attacks, each with that many exact rows per client, out of ``targets``."""
    blank = make_cell(PROTOCOLS[0], DEFENSES[0], seed, observers=[0])
    findings, kept = [], {}
    for name, hits in attacks.items():
        clusters = [[float(targets), 0.0, float(hit), 0.0] for hit in hits]
        paired = read_clusters("exact_rate", clusters)
        found = metric_interval("exact_rate", paired)
        row = replace(
            blank.findings[0], attack=name, value=found.value, control=0.0, advantage=found.value,
            advantage_low=found.low, advantage_high=found.high, interval=found.kind, worst_client=paired.worst,
            identifiable_rate=None, exact_rate=found.value,
        )  # fmt: skip
        findings.append(replace(row, **columns))  # type: ignore[arg-type]
        kept[f"server||{name}"] = clusters
    return replace(blank, findings=tuple(findings), clusters=kept, breakdowns={})


def answer(folder: Path, *cells: CellRecord) -> Answer:
    [only] = answers(summarize(load_run(store(folder / "run", cells))))
    return only


def test_one_leak_beats_all_that_held(tmp_path: Path) -> None:
    found = answer(tmp_path, with_rows({"idle": [0] * 40, "strong": [30] * 40}))
    assert (found.word, found.leak and found.leak.attack) == (AnswerWord.LEAKS, "strong")
    assert found.leak is not None and found.leak.mean("exact_rate") == pytest.approx(0.5)


def test_held_takes_parties_enough_and_every_attack(tmp_path: Path) -> None:
    assert answer(tmp_path / "a", with_rows({"idle": [0] * 45, "other": [0] * 45})).word is AnswerWord.HELD
    few = answer(tmp_path / "b", with_rows({"idle": [0] * 10}))
    assert few.word is AnswerWord.NOT_SHOWN
    assert (
        few.reason.startswith("too few parties: 10 clients x seeds, 40 needed") and "more seeds would do" in few.reason
    )


def test_where_an_attack_is_ahead_seeds_for_an_interval_are_asked_for_not_those_for_held(tmp_path: Path) -> None:
    cells = [with_rows({"row-space": [37, 38, 40]}, seed=seed) for seed in range(2)]
    few = answer(tmp_path / "a", cells[0])
    assert few.word is AnswerWord.NOT_SHOWN and few.reason.endswith("3 clients x seeds, 5 needed; 1 more seed would do")
    settings = summarize(run := load_run(tmp_path / "a" / "run"))
    assert "Add 1 seed, the same command with --seeds 0-1" in " ".join(next_steps(run, settings, Labels.of(settings)))
    assert answer(tmp_path / "b", *cells).word is AnswerWord.LEAKS


def test_the_seeds_that_it_takes_more_are_seeds_enough(tmp_path: Path) -> None:
    few = answer(tmp_path / "a", with_rows({"idle": [0] * 10}))
    more = int(few.reason.split("; ")[1].split()[0])
    seeds = [with_rows({"idle": [0] * 10}, seed=seed) for seed in range(1 + more)]
    assert answer(tmp_path / "b", *seeds[:-1]).word is AnswerWord.NOT_SHOWN
    assert answer(tmp_path / "c", *seeds).word is AnswerWord.HELD


def test_attacks_that_do_not_allow_for_a_fact_show_nothing(tmp_path: Path) -> None:
    found = answer(tmp_path, with_rows({"idle": [0] * 45}, adapted="no: Clipped"))
    assert (found.word, found.reason) == (AnswerWord.NOT_SHOWN, "the attacks here are not adapted to Clipped")
    leaks = answer(tmp_path / "leaks", with_rows({"strong": [30] * 45}, adapted="no: Clipped"))
    assert leaks.word is AnswerWord.LEAKS


def test_nothing_is_held_where_something_unstated_is_done(tmp_path: Path) -> None:
    cell = with_rows({"idle": [0] * 45, "other": [0] * 45})
    assert answer(tmp_path / "stated", cell).word is AnswerWord.HELD
    for adapted in ("no: Unstated", "no: Clipped, Unstated"):
        unstated = replace(cell.findings[1], adapted=adapted)
        found = answer(tmp_path / adapted, replace(cell, findings=(cell.findings[0], unstated)))
        assert found.word is AnswerWord.NOT_SHOWN and "that is not stated" in found.reason


def test_what_is_unstated_to_an_attack_on_labels_keeps_features_from_held(tmp_path: Path) -> None:
    cell = with_rows({"idle": [0] * 45})
    labels = replace(cell.findings[0], attack="latent-labels", status=Status.NOT_APPLICABLE, adapted="no: Unstated")
    for observer, word in (("server", AnswerWord.NOT_SHOWN), ("client:0", AnswerWord.HELD)):
        other = replace(labels, observer=observer)
        settings = summarize(load_run(store(tmp_path / observer, [replace(cell, findings=(*cell.findings, other))])))
        [features] = [found for found in answers(settings) if found.quantity == "features"]
        assert features.word is word


@pytest.mark.parametrize(
    ("payload", "state", "seen_by", "word"),
    [
        ("SecretLetters", "unexamined", "server", AnswerWord.NOT_SHOWN),
        ("SecretLetters", "unexamined", "clients", AnswerWord.HELD),
        ("SecretLetters", "covered", "server", AnswerWord.HELD),
        ("SecretLetters", "sealed", "server", AnswerWord.HELD),
        ("NeighborSums", "unexamined", "server", AnswerWord.HELD),
    ],
)
def test_nothing_is_held_where_an_unprotected_payload_is_sent_that_no_attack_knows(
    tmp_path: Path, payload: str, state: str, seen_by: str, word: AnswerWord
) -> None:
    fields = (FieldState(seen_by, payload, "values", Protection(state), ""),)
    found = answer(tmp_path, replace(with_rows({"idle": [0] * 45}), fields=fields))
    assert found.word is word
    assert (f"nobody read {payload}" in found.reason) is (word is AnswerWord.NOT_SHOWN)


@pytest.mark.parametrize(("seen_by", "word"), [("server", AnswerWord.NOT_SHOWN), ("clients", AnswerWord.HELD)])
def test_nothing_is_held_where_what_is_unstated_is_done_to_a_payload_that_no_attack_of_the_suite_reads(
    tmp_path: Path, seen_by: str, word: AnswerWord
) -> None:
    stated = (FieldState("server", "ModelUpdate", "vector", Protection.NOTHING, "moves with a row"),)
    hidden = (Unstated(Field("ModelUpdate", "vector", "up" if seen_by == "server" else "down"), "a clip"),)
    fields = after_unstated((replace(stated[0], observer=seen_by),), hidden)
    found = answer(tmp_path, replace(with_rows({"idle": [0] * 45}), fields=fields))
    assert found.word is word
    assert ("that is not stated" in found.reason) is (word is AnswerWord.NOT_SHOWN)
    other = (Unstated(Field("NeighborSums", "sums", "up"), "a clip"),)
    assert after_unstated(stated, other) == stated


def test_worse_than_a_guess_is_no_protection(tmp_path: Path) -> None:
    cell = with_rows({"idle": [0] * 45})
    worse = replace(cell.findings[0], advantage=-0.2, advantage_low=-0.3, advantage_high=-0.1)
    found = answer(tmp_path, replace(cell, findings=(worse,)))
    assert found.word is AnswerWord.NOT_SHOWN and "confused" in found.reason


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"advantage": -0.2, "advantage_low": -0.3, "advantage_high": -0.1}, "do worse than guesses"),
        ({"succeeds_weakened": "no"}, "were not seen to work through this defense"),
        (
            {"succeeds_weakened": "no", "reason": f"{RAISED}it raised ValueError: lost", "cause": Cause.RAISED},
            f"were not seen to work through this defense (idle: {RAISED}it raised ValueError: lost)",
        ),
    ],
)
def test_answer_and_headline_give_the_same_reason_why_nothing_is_shown(
    tmp_path: Path, columns: dict[str, object], why: str
) -> None:
    cell = with_rows({"idle": [0] * 45})
    run = load_run(store(tmp_path / "run", (replace(cell, findings=(replace(cell.findings[0], **columns),)),)))  # type: ignore[arg-type]
    settings = summarize(run)
    [only] = answers(settings)
    assert only.word is AnswerWord.NOT_SHOWN and why in only.reason
    [first, *_] = make_verdict(run, settings, Labels.of(settings)).observers
    assert why in first.headline


def test_a_lost_row_is_not_held(tmp_path: Path) -> None:
    cell = with_rows({"idle": [0] * 45, "lost": [0] * 45})
    for status, word in ((Status.FAILED, "1 row failed"), (Status.BROKEN_ATTACK, "failed their self-test")):
        lost = replace(cell.findings[1], status=status, reason="x")
        found = answer(tmp_path / status, replace(cell, findings=(cell.findings[0], lost)))
        assert found.word is AnswerWord.NOT_SHOWN and word in found.reason


def test_nothing_measured_is_not_tested_and_says_why(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[2], DEFENSES[0], 0, observers=[0])
    found = answer(tmp_path, cell)
    assert (found.word, found.leak) == (AnswerWord.NOT_TESTED, None)
    assert found.reason == "no node's features reach this observer"
    assert found.applies  # it was trained
    nothing = tuple(replace(f, accuracy=None) for f in cell.findings)
    assert not answer(tmp_path / "none", replace(cell, findings=nothing)).applies


def test_features_stand_first_and_a_row_that_did_not_apply_has_its_attacks_quantity(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0])
    labels = replace(cell.findings[0], attack="latent-labels", status=Status.NOT_APPLICABLE, reason="no latents")
    found = answers(summarize(load_run(store(tmp_path / "run", [replace(cell, findings=(labels, *cell.findings))]))))
    assert [(a.quantity, a.word) for a in found] == [("features", AnswerWord.LEAKS), ("labels", AnswerWord.NOT_TESTED)]


def test_quantities_read_from_source_are_those_of_the_classes() -> None:
    for name in ATTACKS:
        assert attack_quantity(name) == registry.load("attack", name).quantity
    assert attack_quantity("somebody-elses") == "features"


def test_what_is_ahead_and_not_told_from_chance_says_so(tmp_path: Path) -> None:
    """An upper end says why it is not held; what a reader sees is a large value that is no leak."""
    cell = with_rows({"lucky": [10] * 45}, advantage=0.167, advantage_low=-0.1, advantage_high=0.4, worst_client=0.1)
    found = answer(tmp_path, cell)
    said = "lucky gets ahead of a guess by 0.167, which is not told from chance"
    assert (found.word, found.reason) == (AnswerWord.NOT_SHOWN, f"{said}: the interval is \N{MINUS SIGN}0.100 to 0.400")


def test_the_strongest_attack_is_the_one_that_the_answer_rests_on(tmp_path: Path) -> None:
    """Exact rows are one scale for every attack; another metric's advantage is larger and says less."""
    record = with_rows({"exact": [30] * 40, "close": [30] * 40})
    near = replace(record.findings[1], metric="f1", advantage=0.9, exact_rate=0.1)
    cell = replace(record, findings=(record.findings[0], near))
    [setting] = summarize(load_run(store(tmp_path / "run", [cell])))
    [only] = answers([setting])
    best = setting.strongest(only.observer)
    assert only.leak is not None and best is not None
    assert only.leak.attack == best.attack == "exact"


def test_no_other_attack_is_asked_for_where_one_is_adapted(tmp_path: Path) -> None:
    both = with_rows({"adapted": [0] * 10, "other": [0] * 10})
    other = replace(both.findings[1], adapted="no: Clipped")
    mixed = replace(both, findings=(both.findings[0], other))
    alone = with_rows({"other": [0] * 10}, adapted="no: Clipped")
    for name, cell, asked in (("mixed", mixed, False), ("alone", alone, True)):
        run = load_run(store(tmp_path / name, [cell]))
        steps = next_steps(run, settings := summarize(run), Labels.of(settings))
        assert any("done to messages (Clipped)" in step for step in steps) is asked


def test_the_seeds_that_are_missing_are_named_as_the_command_takes_them(tmp_path: Path) -> None:
    cells = [with_rows({"idle": [0] * 10}, seed=seed) for seed in (0, 4)]
    run = load_run(store(tmp_path, cells))
    steps = next_steps(run, settings := summarize(run), Labels.of(settings))
    more = int(next(step for step in steps if step.startswith("Add ")).split()[1])
    assert any(f"--seeds 0,4-{4 + more}:" in step for step in steps) and more > 1
