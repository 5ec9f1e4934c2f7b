"""What is called a leak, what is held, and what it takes: from made-up clusters to verdicts."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_runs import ATTACKS, DEFENSES, MADE, PROTOCOLS, _Page, make_cell, store, texts
from report_runs import clustered_cell as cell
from report_runs import hits_in_clusters as rows

from fglaudit.execution.folder.plan import Planned
from fglaudit.execution.folder.stored_run import Manifest
from fglaudit.files.own import stamped, unstamped
from fglaudit.finding import OTHERS, CellRecord, Status, adapted_column
from fglaudit.guarantees import FieldState, Protection
from fglaudit.quantities.base import NO_ROW_REACHES
from fglaudit.reports.answers import AnswerWord
from fglaudit.reports.choosing.choice import CHOSEN
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import MEAN, ONE_CLIENT, PROOF, UNIQUE, Leak
from fglaudit.reports.records import load_run
from fglaudit.reports.summary import Setting, summarize
from fglaudit.reports.verdict import ObserverVerdict, make_verdict
from fglaudit.scoring.metrics import metric_interval, read_clusters

SERVER = ("server", "")


def summarized(folder: Path, *cells: CellRecord) -> list[Setting]:
    return summarize(load_run(store(folder / "run", cells)))


def leaks_of(folder: Path, *cells: CellRecord) -> dict[str, Leak]:
    [setting] = summarized(folder, *cells)
    return {leak.attack: leak for leak in setting.leaks}


def verdict(folder: Path, *cells: CellRecord) -> ObserverVerdict:
    settings = summarized(folder, *cells)
    [found] = make_verdict(load_run(folder / "run"), settings, Labels.of(settings)).observers
    return found


def test_a_leak_alone_is_its_printed_interval_and_one_of_many_is_corrected(tmp_path: Path) -> None:
    weak = rows([6, 9, 14, 3, 11, 8, 5, 12, 17, 2, 7, 10, 4, 13, 6, 9, 15, 3])
    alone = leaks_of(tmp_path / "a", cell({"weak": weak}))["weak"]
    assert alone.grounds == (MEAN,) and (alone.low or 0) > 0
    low = alone.low or 0.0
    faint = [[60.0, 0.0, g, 0.0] for g in [0, 1, 0, 2, 0, 0, 1, 3, 0, 0, 1, 0, 0, 2, 4, 0, 0, 1]]
    tails = {
        tail: metric_interval("exact_rate", read_clusters("exact_rate", weak), tail=tail).low
        for tail in (0.025, 0.025 / 12)
    }
    assert (tails[0.025 / 12] or 0) < low
    many = leaks_of(tmp_path / "b", cell({"weak": weak} | {f"idle {i}": faint for i in range(11)}))
    assert many["weak"].low == low  # what is printed stays what it is
    # Whether it is called a leak among twelve is decided at the corrected level.
    assert bool(many["weak"].grounds) == ((tails[0.025 / 12] or 0) > 0)


@pytest.mark.parametrize(
    ("reason", "word"), [("no sums reach this observer", AnswerWord.NOT_SHOWN), (NO_ROW_REACHES, AnswerWord.HELD)]
)
def test_nothing_is_held_while_features_that_may_reach_an_observer_are_untested(
    tmp_path: Path, reason: str, word: AnswerWord
) -> None:
    made = cell({"lira": rows([0] * 45)})
    assert verdict(tmp_path / "alone", made).word is AnswerWord.HELD
    untried = replace(made.findings[0], attack="subset-sum").ended(Status.NOT_APPLICABLE, reason)
    found = verdict(tmp_path, replace(made, findings=(*made.findings, untried)))
    assert found.word is word
    assert ("Features were not tested" in found.headline) == (word is AnswerWord.NOT_SHOWN)


def test_what_is_a_leak_alone_need_not_be_one_among_many(tmp_path: Path) -> None:
    borderline = [
        [60.0, 12.0, g, loss] for g, loss in zip([14, 20, 9, 16, 12, 18] * 3, [2, 0, 3, 1, 2, 1] * 3, strict=True)
    ]
    lows = {
        k: metric_interval("exact_rate", read_clusters("exact_rate", borderline), tail=0.025 / k).low or 0
        for k in (1, 40)
    }
    assert lows[1] > 0 > lows[40]
    assert leaks_of(tmp_path / "a", cell({"one": borderline}))["one"].grounds == (MEAN,)
    idle = rows([0] * 18)
    many = leaks_of(tmp_path / "b", cell({"one": borderline} | {f"idle {i}": idle for i in range(39)}))
    assert many["one"].grounds == ()


def test_one_client_of_ten_makes_a_setting_a_leak(tmp_path: Path) -> None:
    """The mean is 10 %, and ten clients that are all or nothing say little about it."""
    hidden = rows([300] + [0] * 9, targets=300)
    leak = leaks_of(tmp_path, cell({"one": hidden}))["one"]
    assert leak.low == 0.0 or (leak.low or 0) < 0.01
    assert ONE_CLIENT in leak.grounds or MEAN in leak.grounds
    assert leak.worst_client == 1.0
    found = verdict(tmp_path / "again", cell({"one": hidden}))
    assert found.word is AnswerWord.LEAKS and "one client" in found.headline.lower()


def test_proven_rows_are_a_leak_without_any_statistics(tmp_path: Path) -> None:
    few = rows([3, 1, 0])
    found = verdict(tmp_path, cell({"proof": few}, identifiable_rate=0.02))
    assert found.word is AnswerWord.LEAKS and "proven to be determined" in found.headline
    assert leaks_of(tmp_path / "again", cell({"proof": few}, identifiable_rate=0.02))["proof"].grounds == (PROOF,)
    others = cell({"proof": few}, identifiable_rate=0.02, adapted=adapted_column([OTHERS]))
    assert leaks_of(tmp_path / "others", others)["proof"].grounds == ()
    broken = cell({"proof": few}, identifiable_rate=0.02, status=Status.BROKEN_ATTACK)
    assert leaks_of(tmp_path / "broken", broken)["proof"].grounds == ()


def test_exact_rows_of_one_node_alone_are_a_leak_though_clients_are_few(tmp_path: Path) -> None:
    three = rows([40, 38, 41])
    leak = leaks_of(tmp_path / "a", cell({"sums": three}, unique_exact=90))["sums"]
    assert not leak.estimate.shown and leak.grounds == (UNIQUE,)
    found = verdict(tmp_path / "b", cell({"sums": three}, unique_exact=90))
    assert found.word is AnswerWord.LEAKS and "90 exact rows of one observer" in found.detail
    for name, columns in (
        ("shared with other nodes", {"unique_exact": 0}),
        ("as many as chance deals", {"unique_exact": 4}),
        ("broken", {"unique_exact": 90, "status": Status.BROKEN_ATTACK}),
    ):
        assert leaks_of(tmp_path / name, cell({"sums": three}, **columns))["sums"].grounds == (), name


def test_rows_of_one_node_alone_count_by_their_mean_over_seeds(tmp_path: Path) -> None:
    cells = [cell({"sums": rows([40, 38])}, seed, unique_exact=right) for seed, right in ((0, 60), (1, 0))]
    assert leaks_of(tmp_path, *cells)["sums"].unique_exact == 30


def test_held_takes_every_adapted_attacks_own_upper_end(tmp_path: Path) -> None:
    none = rows([0] * 45)
    assert verdict(tmp_path / "held", cell({"a": none, "b": none})).word is AnswerWord.HELD
    hit = rows([0] * 40 + [2, 1, 3, 1, 2])
    found = verdict(tmp_path / "hit", cell({"a": none, "b": hit}))
    assert found.word is AnswerWord.NOT_SHOWN and found.headline.startswith(
        "No attack here is ahead of a guess by more than"
    )
    aside = replace(cell({"b": hit}).findings[0], adapted="no: Clipped")
    both = cell({"a": none, "b": hit})
    other = replace(both, findings=(both.findings[0], aside))
    assert (
        verdict(tmp_path / "aside", other).word is AnswerWord.HELD
    )  # it may show a leak, never its absence, and shows none


def test_held_takes_every_message_as_the_attacks_know_it(tmp_path: Path) -> None:
    plain = cell({"a": rows([0] * 45), "b": rows([0] * 45)})
    unstated = replace(plain, findings=(plain.findings[0], replace(plain.findings[1], adapted="no: Unstated")))
    unknown = replace(plain, fields=(FieldState("server", "SecretLetters", "values", Protection.UNEXAMINED, ""),))
    for made, words in ((unstated, "that is not stated"), (unknown, "obody read SecretLetters")):
        found = verdict(tmp_path / words, made)
        assert found.word is AnswerWord.NOT_SHOWN and words in found.headline
    protected = replace(plain, fields=(FieldState("server", "SecretLetters", "values", Protection.COVERED, ""),))
    assert verdict(tmp_path / "covered", protected).word is AnswerWord.HELD


def test_too_few_parties_are_said_with_the_seeds_that_would_do(tmp_path: Path) -> None:
    found = verdict(tmp_path / "ten", cell({"a": rows([0] * 10)}))
    assert found.word is AnswerWord.NOT_SHOWN
    assert found.headline.startswith("Too few parties: no attack here succeeded")
    assert "10 clusters" in found.headline and "takes 40 at least; 4 seeds would do" in found.headline
    pooled = [cell({"a": rows([0] * 10)}, seed=seed) for seed in range(4)]
    assert verdict(tmp_path / "four", *pooled).word is AnswerWord.HELD
    few = verdict(tmp_path / "few", cell({"a": rows([30, 40, 35])}))
    assert few.word is AnswerWord.NOT_SHOWN and "too few parties to tell that from chance" in few.headline
    assert "too few parties for an interval, range" in few.detail


def test_rows_that_are_rebuilt_come_before_attacks_that_are_confused(tmp_path: Path) -> None:
    ahead = cell({"row-space": rows([37, 38, 40])})
    confused = replace(
        ahead.findings[0], attack="update-shares", quantity="training-labels", metric="overlap", advantage=-0.9,
        advantage_low=-1.0, advantage_high=-0.8,
    )  # fmt: skip
    found = verdict(tmp_path, replace(ahead, findings=(*ahead.findings, confused)))
    assert found.headline.startswith("Rebuilds 63.9")
    assert "3 clients x seeds, 5 needed; 1 more seed would do" in found.headline
    assert "labels of training nodes do worse than guesses" in found.detail
    assert "nothing leaks" not in found.detail


def test_the_same_partition_brings_no_new_clusters_with_another_seed(tmp_path: Path) -> None:
    def drawn(seed: int, digest: str) -> CellRecord:
        made = cell({"a": rows([0] * 10)}, seed=seed)
        return replace(made, partition_facts={**made.partition_facts, "digest": digest})

    [fresh] = leaks_of(tmp_path / "fresh", *(drawn(seed, str(seed)) for seed in range(4))).values()
    [same] = leaks_of(tmp_path / "same", *(drawn(seed, "one") for seed in range(4))).values()
    assert fresh.clusters is not None and same.clusters is not None
    assert (len(fresh.clusters.targets), len(same.clusters.targets)) == (40, 10)
    assert np.allclose(same.clusters.targets, 240)
    found = verdict(tmp_path / "said", *(drawn(seed, "one") for seed in range(4)))
    assert found.word is AnswerWord.NOT_SHOWN and "further seeds bring no further clients" in found.headline


def test_the_least_of_several_settings_is_said_to_be_chosen(tmp_path: Path) -> None:
    loud = cell({ATTACKS[0]: rows([40] * 10)})
    quiet = make_cell(PROTOCOLS[0], DEFENSES[1], 0, observers=[0])
    found = verdict(tmp_path, loud, quiet)
    assert found.word is AnswerWord.LEAKS and found.lowest.endswith(f"{CHOSEN}.")


@pytest.mark.parametrize("damage", ["columns", "kind"])
def test_records_of_older_versions_are_refused_and_announced(tmp_path: Path, damage: str) -> None:
    """Four rows of three numbers are as many numbers as three of four: they must never be read as such."""
    made = cell({"a": rows([0] * 4)})
    folder = store(tmp_path / "run", [made])
    path = folder / "cells" / f"{made.cell}.json"
    stored = unstamped(path.read_bytes(), path.name)
    if damage == "columns":
        stored["clusters"] = {key: [row[:3] for row in found] for key, found in stored["clusters"].items()}
    else:
        stored["findings"][0]["interval"] = "bootstrap"
    path.write_text(stamped(stored, path.name), "utf-8")
    run = load_run(folder)
    assert run.cells == () and len(run.unreadable) == 1 and " again" in run.unreadable[0].reason


def test_summary_says_grounds_and_parties(tmp_path: Path) -> None:
    folder = store(tmp_path / "run", [cell({"a": rows([0] * 10), "b": rows([50] * 10)})])
    page = _Page(texts(folder)["report.html"]).words
    assert "worst client: advantage 0.833" in page
    with (folder / "summary.csv").open(newline="", encoding="utf-8") as file:
        found = {row["attack"]: row for row in csv.DictReader(file)}
    assert (found["a"]["leak"], found["b"]["leak"]) == ("", "mean")
    assert (found["a"]["clusters"], found["a"]["clusters_needed"]) == ("10", "40")
    assert float(found["b"]["worst_client"]) == pytest.approx(50 / 60)


def test_the_page_explains_every_word_of_an_answer_under_that_word(tmp_path: Path) -> None:
    page = texts(store(tmp_path / "run", [cell({"a": rows([0] * 10)})]))["report.html"]
    explained = " ".join(re.findall(r"<dt>([^<]+)</dt>", page)).lower()
    assert not [word.value for word in AnswerWord if word.value not in explained]


def test_source_files_of_plugins_stand_in_the_report(tmp_path: Path) -> None:
    folder = store(tmp_path / "run", [cell({"a": rows([0] * 10)})])
    plan = tuple(Planned.like(record) for record in load_run(folder).cells)
    (folder / "run.json").write_text(Manifest("demo", MADE, plan, {"attack a": "ab" * 32}).text(), "utf-8")
    words = _Page(texts(folder)["report.html"]).words
    assert "attack a" in words and "ab" * 32 in words and "cheats on purpose" in words
