"""What the console says: alarms first, features first, figures of the rows they come from."""

from __future__ import annotations

import csv
import html
import io
import re
from dataclasses import replace
from pathlib import Path

from report_runs import DEFENSES, PROTOCOLS, make_cell, make_run, store
from rich.console import Console

from fglaudit.finding import OTHERS, CellRecord, Status
from fglaudit.guarantees import FieldState, Protection, Verdict, Word
from fglaudit.reports import write_report
from fglaudit.reports.formats.console import print_answers
from fglaudit.reports.formats.console_tables import MOST, MOST_OBSERVERS
from fglaudit.reports.records import load_run


def said(folder: Path, records: list[CellRecord]) -> str:
    run = load_run(store(folder / "run", records))
    console = Console(file=io.StringIO(), width=220)
    print_answers(console, run)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text.replace("\u202f", " ")


def test_alarms_come_first_then_one_block_per_observer_with_features_first(tmp_path: Path) -> None:
    text = said(tmp_path, make_run())
    order = ["Alarms", " failed (", "Who learns what", "feature rows ", "Server", "One client"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "not tested: no node's features reach this observer (local-gcn; local-gcn, drop-singletons)" in text


def test_exact_rows_lead_for_every_observer_and_are_those_of_the_row(tmp_path: Path) -> None:
    text = said(tmp_path, [make_cell(PROTOCOLS[0], DEFENSES[0], seed) for seed in (0, 1)])
    write_report(tmp_path / "run")
    with (tmp_path / "run" / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    cells = re.findall(r"LEAKS ([\d.]+) % exact", text)
    assert len(cells) == 3
    for found, observer in zip(cells, (("server", ""), ("client:each", ""), ("client:each", "x")), strict=True):
        mine = [r for r in rows if r["observer"] == observer[0] and bool(r["observer_knowledge"]) == bool(observer[1])]
        best = max(float(r["exact_rate"]) for r in mine if r["leak"])
        assert found == f"{100 * best:.1f}"


def test_a_defense_that_hides_the_rows_is_seen_to_change_something(tmp_path: Path) -> None:
    cells = [make_cell(PROTOCOLS[0], d, 0, observers=[1], parties=45) for d in (DEFENSES[0], DEFENSES[2])]
    linkage = [
        replace(c.findings[0], attack="update-linkage", quantity="linkage", metric="auc", value=1.0, control=0.5,
                advantage=1.0, advantage_low=1.0, advantage_high=1.0)
        for c in cells
    ]  # fmt: skip
    text = said(tmp_path, [replace(c, findings=(*c.findings, row)) for c, row in zip(cells, linkage, strict=True)])
    assert text.index("LEAKS") < text.index("HELD") < text.index("linkage")
    assert "LEAKS in 2 of 2: AUC 1.000 (0.500)" in text
    write_report(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert page.count('<small class="also leaking">also leaks: linkage') == 2, "red beside whatever word stands first"


def test_a_figure_of_another_quantity_that_shows_nothing_says_why(tmp_path: Path) -> None:
    """AUC 1.000 beside a guess of 0.500 stood there as NOT SHOWN, without a word."""
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0])
    few = replace(cell.findings[0], attack="update-linkage", quantity="linkage", metric="auc", value=1.0, control=0.5,
                  advantage=1.0, advantage_low=1.0, advantage_high=1.0, interval="range")  # fmt: skip
    text = said(tmp_path, [replace(cell, findings=(*cell.findings, few))])
    _, _, besides = text.partition("besides, in any setting")
    assert re.search(r"NOT SHOWN in 1 of 1: AUC 1\.000", besides)
    assert re.search(r"  not shown: [^\n]*too few [^\n]*\(Server: linkage, if senders were hidden\)", besides)


def test_refuted_and_unexamined_are_alarms(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0, observers=[0])
    judged = replace(
        cell,
        verdict=Verdict(Word.REFUTED, reason="the noise is a third of what was stated."),
        fields=(FieldState("server", "NeighborSums", "degrees", Protection.UNEXAMINED, "nothing reads it"),),
    )
    text = said(tmp_path, [judged])
    assert (
        text.index("REFUTED: the guarantee of fedgcn, gaussian") < text.index("UNEXAMINED") < text.index("Who learns")
    )
    assert (
        "the noise is a third of what was stated." in text
        and "allows for the defense reads NeighborSums.degrees" in text
    )


def test_an_alarm_names_the_observers_whom_no_attack_speaks_for(tmp_path: Path) -> None:
    states = (
        FieldState("server", "ModelUpdate", "vector", Protection.ATTACKED, "read by update-linkage"),
        FieldState("client:each", "ModelUpdate", "vector", Protection.UNEXAMINED, "nothing reads it"),
    )
    cells = [replace(make_cell(p, DEFENSES[0], 0, observers=[0, 1]), fields=states) for p in PROTOCOLS[:2]]
    assert (
        "UNEXAMINED: towards one client no working attack here reads ModelUpdate.vector,"
        " and no guarantee covers it: what leaks there is not known. Settings: fedgcn hops=1, no defense; fedgcn"
        " hops=2, no defense."
    ) in " ".join(said(tmp_path, cells).split())
    defended = replace(make_cell(PROTOCOLS[0], DEFENSES[1], 0, observers=[0, 1]), fields=states)
    assert "no working attack here that allows for the defense reads" in " ".join(
        said(tmp_path / "d", [defended]).split()
    )
    both = " ".join(said(tmp_path / "both", [*cells, defended]).split())
    assert both.count("UNEXAMINED") == 1, "one field, one alarm"
    assert "no working attack here that allows for the defense, if there is one, reads ModelUpdate.vector" in both


def test_an_alarm_tells_what_an_attack_of_others_alone_read(tmp_path: Path) -> None:
    """Beside the leak that a user's own attack had found stood that no attack reads the field; and its name stood at
    fields as well that it does not read."""
    open_ = FieldState("server", "NeighborSums", "values", Protection.UNEXAMINED, "no adapted attack reads it")
    read = replace(open_, others=("mine.py:Mine",))
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0])
    own = tuple(replace(f, adapted=f"no: {OTHERS}") for f in cell.findings)
    alone = "mine.py:Mine alone, no part of fglaudit, reads NeighborSums.values, and no guarantee covers it"
    known = "what leaks there, beyond what it shows, is not known"

    def alarms(name: str, *states: FieldState) -> list[str]:
        text = " ".join(said(tmp_path / name, [replace(cell, findings=own, fields=states)]).split())
        return text.partition("Who learns what")[0].split("UNEXAMINED: ")[1:]

    (line,) = alarms("read", read)
    assert f"towards the server {alone}: {known}" in line
    (line,) = alarms("unread", open_)
    assert "no working attack here reads NeighborSums.values" in line and "beyond" not in line
    mine, nobodys = alarms("both", read, replace(open_, field="degrees"))
    assert known in mine and "degrees" not in mine
    assert "no working attack here reads NeighborSums.degrees, and" in nobodys and "Mine" not in nobodys
    clients = replace(open_, observer="client:each")
    mine, nobodys = alarms("observers", read, clients)
    assert f"towards the server {alone}" in mine and "towards one client no working attack" in nobodys
    (line,) = alarms("order", open_, clients, replace(clients, field="degrees"), replace(open_, field="degrees"))
    assert "reads NeighborSums.values, NeighborSums.degrees," in line


def test_nothing_is_dropped_silently(tmp_path: Path) -> None:
    cells = []
    for rounds in range(1, MOST + 6):
        made = make_cell(("fedgcn", {"hops": 1, "rounds": rounds}, 0.8), DEFENSES[0], 0, observers=[0])
        cells.append(made)
    text = said(tmp_path, cells)
    assert re.search(r"and 5 more settings: see the report +5 leaks", text)


def test_settings_that_could_not_be_run_are_counted(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[1], 0)
    idle = tuple(
        replace(f, status=Status.NOT_APPLICABLE, reason="nothing to drop", accuracy=None) for f in cell.findings
    )
    text = said(tmp_path, [make_cell(PROTOCOLS[0], DEFENSES[0], 0), replace(cell, findings=idle)])
    assert "1 setting not run: the defense does not serve the protocol (see the report and coverage.csv)" in text
    assert "nothing to drop" not in text


def test_the_page_counts_those_settings_apart_that_stand_in_no_table_of_answers(tmp_path: Path) -> None:
    """Its head once said "2 settings" where the table beneath it said "1 of 1"."""
    cell = make_cell(PROTOCOLS[0], DEFENSES[1], 0)
    idle = [
        replace(f, status=Status.NOT_APPLICABLE, reason="no", accuracy=None, server="byzantine") for f in cell.findings
    ]
    store(tmp_path, [make_cell(PROTOCOLS[0], DEFENSES[0], 0), replace(cell, findings=tuple(idle))])
    write_report(tmp_path)
    words = "setting not run: the defense or the server's behaviour does not serve the protocol"
    page = html.unescape((tmp_path / "report.html").read_text())
    assert f'1 setting · <a href="#failures">1 further {words}</a>' in page
    assert f"1 {words}: " in (tmp_path / "report.md").read_text()


def test_a_mark_that_lies_below_the_figure_is_said_to(tmp_path: Path) -> None:
    """An advantage of -3 stood on the edge of the figure as one of -0.5, without a word."""
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0])
    for folder, advantage in (("inside", -0.4), ("below", -3.0)):
        rows = tuple(
            replace(f, advantage=advantage, advantage_low=advantage, advantage_high=advantage, identifiable_rate=None)
            for f in cell.findings
        )
        store(tmp_path / folder, [replace(cell, findings=rows, clusters={})])
        write_report(tmp_path / folder)
        page = (tmp_path / folder / "report.html").read_text()
        assert ("A mark on the lower edge lies below it." in page) == (folder == "below")


def test_where_no_setting_could_be_run_the_reasons_stand_there(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[1], 0)
    idle = tuple(
        replace(f, status=Status.NOT_APPLICABLE, reason="nothing to drop", accuracy=None) for f in cell.findings
    )
    text = said(tmp_path, [replace(cell, findings=idle)])
    assert "nothing to drop (fedgcn, drop-singletons)" in text and "Who learns what" not in text


def test_many_observers_stand_in_several_tables(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0])
    rows = tuple(replace(f, observer=f"client:{k}") for k in range(MOST_OBSERVERS + 2) for f in cell.findings)
    text = said(tmp_path, [replace(cell, findings=rows)])
    first, second = (line for line in text.splitlines() if line.startswith("feature rows"))
    assert "accuracy" in first and "accuracy" not in second
    shown = re.findall(r"Client \d", first + second)
    assert shown == [f"Client {k}" for k in range(MOST_OBSERVERS + 2)]


def test_on_a_narrow_terminal_no_word_is_broken(tmp_path: Path) -> None:
    """Six columns of a table in 40 columns of a terminal were a few letters each."""
    run = load_run(store(tmp_path / "run", make_run(seeds=(0,))))
    console = Console(file=io.StringIO(), width=40)
    print_answers(console, run)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    start = lines.index("fedgcn hops=1, drop-singletons")
    assert lines[start + 1].startswith("  accuracy: ") and lines[start + 3].startswith("  Server: LEAKS ")
