"""Reports from records: nothing dropped, nothing promised, nothing unescaped, equal for equal records."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import (
    ATTACKS,
    DEFENSES,
    OBSERVERS,
    PROTOCOLS,
    SEEDS,
    _Page,
    make_cell,
    make_run,
    page_of,
    page_words,
    store,
    texts,
)

from fglaudit.errors import FglauditError
from fglaudit.finding import Status
from fglaudit.quantities import QUANTITIES
from fglaudit.reports import write_report
from fglaudit.reports.answers import AnswerWord
from fglaudit.reports.formats.pages import natural
from fglaudit.reports.labels import Labels
from fglaudit.reports.numbers import decimal, percent, percent_spread, size
from fglaudit.reports.records import load_run
from fglaudit.reports.summary import summarize
from fglaudit.reports.verdict import make_verdict
from fglaudit.reports.wording.names import QUANTITY_NAMES
from fglaudit.reports.wording.observers import threat_model


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = store(tmp_path_factory.mktemp("demo") / "run", make_run())
    write_report(folder)
    return folder


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "summary.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_summary_has_every_setting_observer_and_attack(demo: Path) -> None:
    rows = rows_of(demo)
    assert len(rows) == len(PROTOCOLS) * len(DEFENSES) * len(OBSERVERS) * len(ATTACKS)
    counted = {name: sum(int(row[name]) for row in rows) for name in ("ok", "failed", "broken", "not_applicable")}
    findings = [f for record in make_run() for f in record.findings]
    for name, status in zip(
        counted, (Status.OK, Status.FAILED, Status.BROKEN_ATTACK, Status.NOT_APPLICABLE), strict=True
    ):
        assert counted[name] == sum(f.status is status for f in findings) > 0
    assert all(row["reason"] for row in rows if row["status"] != "ok")


def test_what_did_not_apply_stands_last_in_the_summary(demo: Path) -> None:
    idle = [row["status"] == "not-applicable" for row in rows_of(demo)]
    assert any(idle) and idle == sorted(idle)


def test_summary_aggregates_over_seeds(demo: Path) -> None:
    [row] = [
        r
        for r in rows_of(demo)
        if (r["protocol_args"], r["defense"], r["observer"], r["observer_knowledge"], r["attack"])
        == ("hops=1;rounds=100", "drop-singletons", "client:each", "", "subset-sum")
    ]
    cells = [make_cell(PROTOCOLS[0], DEFENSES[1], seed) for seed in SEEDS]
    found = [
        next(f for f in c.findings if (f.observer, f.observer_knowledge, f.attack) == ("client:each", "", "subset-sum"))
        for c in cells
    ]
    values = [f.value or 0.0 for f in found]
    assert float(row["value_mean"]) == pytest.approx(sum(values) / 2)
    assert float(row["value_sd"]) == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    clusters = [c for cell in cells for c in cell.clusters["client:each||subset-sum"]]
    pooled = sum(c[2] for c in clusters) / sum(c[0] for c in clusters)
    assert float(row["advantage"]) == pytest.approx(pooled)
    assert float(row["advantage_low"]) < pooled < float(row["advantage_high"])
    assert (row["interval"], row["seeds"], row["bytes_up"]) == ("beta-binomial", "0 1", "8123456.0")


def test_page_shows_every_status_and_reason(demo: Path) -> None:
    words = page_of(demo).words
    for finding in (f for record in make_run() for f in record.findings):
        assert finding.reason in words
        assert finding.attack in words
    assert "Incomplete or unsound results" in words
    parts = ("Incomplete or unsound results", "Who learns what?", "What stops it, at what cost?", "How sure is that?")
    places = [words.index(part) for part in parts]
    assert places == sorted(places)


def test_true_and_rebuilt_rows_stand_side_by_side(demo: Path) -> None:
    page = (demo / "report.html").read_text("utf-8")
    rows = re.search(r'<table class="pairs">(.*?)</table>', page, re.DOTALL)
    assert rows is not None
    cells = [re.sub(r"<[^>]*>", " ", cell).split() for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", rows[1])]
    assert cells[8] == ["median:", "18", "F1", "0.500"]
    assert [" ".join(cell) for cell in cells[9:12]] == ["22, 33, 44, 55 4 columns", "0, 11 2 columns", "\u2013"]
    fedgcn = sum(name == "fedgcn" for name, *_ in PROTOCOLS)  # the other one shows nobody any features
    assert page.count('<table class="pairs">') == fedgcn * len(DEFENSES) * len(OBSERVERS)


def test_worst_leak_is_named_per_observer(demo: Path) -> None:
    run = load_run(demo)
    settings = summarize(run)
    verdict = make_verdict(run, settings, Labels.of(settings))
    by_observer = {item.observer: item for item in verdict.observers}
    assert set(by_observer) == set(OBSERVERS)
    client = by_observer["client:each", ""]
    assert client.word is AnswerWord.LEAKS
    assert re.match(
        r"Gets 6\d\.\d.% of its neighbours.s? rows exact \(a guess: 0.%\), F1 0\.\d\d \(0\.15\)\.",
        client.headline,
    )
    assert "subset-sum" in client.detail
    assert "95 % interval" in client.detail
    assert "no defense" in client.detail
    assert "gaussian" in client.lowest


def test_nothing_is_requested_and_everything_closes(demo: Path) -> None:
    page = page_of(demo)
    fetching = {"src", "srcset", "poster", "data", "action", "background", "xlink:href"}
    for tag, attributes in page.tags:
        assert tag not in ("iframe", "object", "embed", "img", "form", "base")
        assert not fetching & set(attributes)
        if tag == "link":
            assert attributes["href"] == "data:,"
        if tag == "a":
            assert re.fullmatch(r"#\w+|\w+\.csv", attributes["href"] or "")
    text = (demo / "report.html").read_text("utf-8")
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|url\(|@import", text)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(a["href"][1:] in ids for tag, a in page.tags if tag == "a" and a["href"] and a["href"][0] == "#")


def test_every_quantity_has_a_name_in_reports() -> None:
    assert set(QUANTITY_NAMES) == {"features", *QUANTITIES}


HOSTILE = "<script>alert('x')</script><img src=x onerror=y>|`*_["


def test_names_are_escaped(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0)
    hostile = dict.fromkeys(
        ("suite", "dataset", "partition", "protocol", "defense", "observer_knowledge", "attack", "mechanism"), HOSTILE
    )
    findings = [replace(f, **hostile) for f in cell.findings]  # type: ignore[arg-type]
    findings[1] = replace(findings[1], status=Status.FAILED, reason=HOSTILE, observer=HOSTILE)
    bad = replace(
        cell,
        findings=tuple(findings),
        notes=(HOSTILE,),
        partition_facts={HOSTILE: HOSTILE},
        description={"protocol": {"name": HOSTILE, HOSTILE: HOSTILE}},
    )
    written = texts(store(tmp_path / "run", [bad], suite=f"name: {HOSTILE}</pre>"))
    page = _Page(written["report.html"])
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in page.tags)
    assert "alert('x')" in page.words
    assert not re.search(r"(?<!\\)<", written["report.md"])


def test_equal_records_give_equal_files_in_any_order(tmp_path: Path) -> None:
    records = make_run()[:4]
    first = texts(store(tmp_path / "a", records))
    again = texts(tmp_path / "a")
    other = texts(store(tmp_path / "b", records[::-1]))
    assert first == again == other
    slower = [
        replace(r, findings=tuple(replace(f, seconds_attack=9.0, seconds_train=9.0) for f in r.findings))
        for r in records
    ]
    timed = texts(store(tmp_path / "c", slower))
    assert timed["report.html"] == first["report.html"]
    assert timed["report.md"] == first["report.md"]


def test_planned_cells_without_a_record_are_announced(tmp_path: Path) -> None:
    records = [make_cell(PROTOCOLS[0], d, seed) for d in DEFENSES for seed in SEEDS]
    folder = store(tmp_path / "run", records[:-2], plan=records)
    truncated = folder / "cells" / f"{records[0].cell}.json"
    truncated.write_text(truncated.read_text("utf-8")[:500], "utf-8")
    written = texts(folder)
    assert len(rows_of(folder)) == len(DEFENSES) * len(OBSERVERS) * len(ATTACKS)
    words = _Page(written["report.html"]).words
    assert "2 planned cells of the suite have no record: " in words
    assert "fedgcn, gaussian, seeds 0, 1." in words, "the place stands in the head, and is the same for all"
    assert "nothing is known about the leakage there" not in words, "each loss is told once"
    assert f"cells/{records[0].cell}.json cannot be read" in words
    assert "not run: the suite stopped before this cell" in words
    lost = [row for row in rows_of(folder) if row["defense"] == "gaussian"]
    assert all((row["status"], row["failed"]) == ("failed", "2") for row in lost)


def test_a_seed_that_one_setting_lacks_is_announced(tmp_path: Path) -> None:
    records = [make_cell(PROTOCOLS[0], DEFENSES[0], seed) for seed in (0, 1)] + [
        make_cell(PROTOCOLS[0], DEFENSES[1], 0)
    ]
    said = "No result for seed 1: fedgcn, drop-singletons."
    assert said in page_words(store(tmp_path / "run", records))


def test_an_empty_run_says_so(tmp_path: Path) -> None:
    written = texts(store(tmp_path / "run", []))
    assert "This run has no results at all." in _Page(written["report.html"]).words
    assert "This run has no results at all." in written["report.md"]
    assert len(written["summary.csv"].splitlines()) == 1


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FglauditError, match="has no 'cells' folder"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    folder = store(tmp_path / "run", make_run(seeds=(3,))[:-1])
    words = page_words(folder)
    assert "One seed: how much accuracy and leakage vary between runs is unknown." in words
    assert "±" not in words
    assert {row["accuracy_sd"] for row in rows_of(folder)} == {""}
    names = ("protocol_args", "defense", "observer", "attack")
    wanted = ("hops=1;rounds=100", "drop-singletons", "server", "row-space")
    [row] = [r for r in rows_of(folder) if tuple(r[n] for n in names) == wanted]
    [finding] = [
        f for f in make_cell(PROTOCOLS[0], DEFENSES[1], 3).findings if (f.observer, f.attack) == ("server", "row-space")
    ]
    assert float(row["advantage_high"]) == finding.advantage_high


def test_settings_that_differ_only_in_the_description_are_not_pooled(tmp_path: Path) -> None:
    one = make_cell(PROTOCOLS[0], DEFENSES[0], 0)
    other = replace(one, cell="f" * 16, description={**one.description, "dataset": {"name": "csbm-cora", "noise": 1}})
    assert len(summarize(load_run(store(tmp_path / "run", [one, other])))) == 2


def test_markdown_has_the_verdict_and_the_main_table(demo: Path) -> None:
    report = (demo / "report.md").read_text("utf-8")
    table = [line for line in report.splitlines() if line.startswith(("| fedgcn", "| local-gcn"))]
    assert len(table) == len(PROTOCOLS) * len(DEFENSES)
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 14 for line in table)
    assert "Incomplete or unsound results" in report
    assert "RuntimeError: out of memory" in report


def test_nothing_is_left_behind_when_writing(demo: Path) -> None:
    assert sorted(p.name for p in demo.iterdir() if p.suffix != ".png") == [
        "cells", "figure-1.svg", "findings.json", "report.html", "report.md", "suite.yaml", "summary.csv",
        "summary.tex",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("observer", "expected"),
    [
        (("wire", ""), "every message as it is sent"),
        (("server", "topology"), "Knows beforehand: every edge of the graph."),
        (("client:each", ""), "the degrees of its neighbours at other clients"),
        (("client:each", "no-degrees"), "but not the degrees"),
        (("client:0+client:1", ""), "Clients 0 and 1 collude"),
        (("server+client:0", "auxiliary=0.1"), "features and labels of 10.0"),
    ],
)
def test_threat_models_in_words(observer: tuple[str, str], expected: str) -> None:
    assert expected in threat_model(observer)


def test_rounding_never_says_all_or_none() -> None:
    assert percent(1474 / 1475) == "99.9\u202f%"
    assert percent(0.99999) == ">\u202f99.9\u202f%"
    assert percent(0.0001) == "<\u202f0.1\u202f%"
    assert (percent(0.0), percent(1.0), percent(None)) == ("0\u202f%", "100\u202f%", "\u2013")
    assert (decimal(0.9999), decimal(1.0), decimal(-0.0001), decimal(-0.5)) == (
        "0.999",
        "1.000",
        "0.000",
        "\u2212" + "0.500",
    )
    assert percent_spread([0.9999, 1.0], 0.0) == ">\u202f99.9 \u00b1 0.0\u202f%"
    assert percent_spread([0.0001], None) == "<\u202f0.1\u202f%"
    assert (size(999), size(1_593_000)) == ("999\u202fB", "1.59\u202fMB")


def test_buckets_sort_as_numbers() -> None:
    assert sorted(["10", "9", "9+", "0-1", "2-4"], key=natural) == ["0-1", "2-4", "9", "9+", "10"]
