"""The first screen: what somebody reads who has never seen the tool, and in which order."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from report_runs import DEFENSES, PROTOCOLS, make_cell, store

from fglaudit.finding import Cause, CellRecord, Reason, Status
from fglaudit.reports import write_report
from fglaudit.reports.datasets import names_apart
from fglaudit.reports.verdict import MOST_COSTS
from fglaudit.reports.wording.glossary import terms_used


def text_of(folder: Path) -> str:
    write_report(folder)
    return (folder / "report.md").read_text("utf-8")


def test_the_answer_stands_first_and_what_to_do_about_it_is_said(tmp_path: Path) -> None:
    text = text_of(store(tmp_path / "run", [make_cell(PROTOCOLS[0], DEFENSES[0], seed) for seed in (0, 1)]))
    heads = [
        "**Who learns what?**",
        "**What stops it, at what cost?**",
        "**How sure is that?**",
        "**What next?**",
        "> Note",
    ]
    places = [text.index(head) for head in heads if head in text]
    assert places == sorted(places) and len(places) >= 4
    assert "Do not deploy fedgcn" in text and "the others are not thereby safe" in text
    assert "exact: every entry is right" in text


def test_words_are_explained_where_they_stand_and_nowhere_else() -> None:
    assert terms_used(["No attack here succeeded."]) == ()
    assert [term[:7] for term in terms_used(["No attack here is ahead of a guess, unproven."])] == ["A guess"], "words"
    assert [term[:9] for term in terms_used(["rebuilds 9 % of the rows exactly"])] == ["A feature"]
    assert [term[:2] for term in terms_used(["gets 3 % exact (a guess: 0 %), F1 0.1 (0)"])] == ["A ", "A ", "F1"]


def test_a_headline_names_its_data_where_there_are_several(tmp_path: Path) -> None:
    here = make_cell(PROTOCOLS[0], DEFENSES[0], 0)
    there = replace(
        make_cell(PROTOCOLS[0], DEFENSES[0], 1),
        findings=tuple(replace(f, dataset="elsewhere") for f in make_cell(PROTOCOLS[0], DEFENSES[0], 1).findings),
    )
    folder = store(tmp_path / "run", [here, there])
    write_report(folder)
    page = (folder / "report.html").read_text("utf-8")
    assert re.search(r"no defense on \w+, dirichlet", page[page.index('class="soft num small"') :][:200])


def test_a_defense_that_blinds_one_observer_alone_is_named_with_its_accuracy(tmp_path: Path) -> None:
    """Encryption leaves clients what they had; that it stops the server stood in the table alone."""
    bare = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0, 1])
    sealed = make_cell(PROTOCOLS[0], DEFENSES[1], 0, observers=[0, 1])
    reason = Reason("server sees ciphertexts only of NeighborSums, and holds no key", Cause.SEALED)
    rows = [row.ended(Status.NOT_APPLICABLE, reason) if row.observer == "server" else row for row in sealed.findings]
    text = text_of(store(tmp_path / "run", [bare, replace(sealed, findings=tuple(rows))]))
    assert "none of its defenses here is shown to stop all attacks on features" in text
    assert re.search(r"in part: drop-singletons at [\d.]+\s% \(Server: ciphertexts only\)", text)


def test_many_settings_leave_every_answer_on_the_first_screen(tmp_path: Path) -> None:
    """A suite of eight data sets had five screens of accuracies before what to do next."""
    cells = []
    for number in range(12):
        one = make_cell(PROTOCOLS[0], DEFENSES[0], number)
        findings = tuple(replace(row, dataset=f"data{number}", seed=0) for row in one.findings)
        description = {**one.description, "dataset": {"name": f"data{number}"}}
        cells.append(replace(one, findings=findings, description=description))
    folder = store(tmp_path / "run", cells)
    text = text_of(folder)
    assert text.count("without a defense") == MOST_COSTS and "4 more sentences: see report.html." in text
    page = (folder / "report.html").read_text("utf-8")
    assert "data0, dirichlet, clients=10, beta=10000; data1" in page and "; and 9 more · 12 settings · seed 0" in page
    hidden = re.search(r">4 more</summary>(.*?)</details>", page, re.DOTALL)
    assert hidden is not None and hidden[1].count("without a defense") == 4


def test_accuracies_say_of_what_they_are_where_nothing_is_read_without_a_defense(tmp_path: Path) -> None:
    """The answer opened with a bare "84.8 % (...)", and that there is nothing to stop was not said."""
    bare = make_cell(PROTOCOLS[2], DEFENSES[0], 0)
    text = text_of(store(tmp_path / "bare", [bare]))
    answer = text[text.index("**What stops it") :].split("**How sure")[0]
    assert "Without a defense no attack here is shown to read feature rows" in answer
    assert re.search(r"Accuracy: [\d.]+\s% \(local-gcn, no defense\)", answer)
    text = text_of(store(tmp_path / "defended", [make_cell(PROTOCOLS[2], DEFENSES[2], 0)]))
    assert "Every setting here has a defense" in text


def test_a_field_that_is_a_list_is_named_in_plain_words(tmp_path: Path) -> None:
    cells = []
    for number, on in enumerate((["GlobalNodes"], ["GlobalNodes", "ModelUpdate"])):
        one = make_cell(PROTOCOLS[0], ("gaussian", {"epsilon": 8.0 + number}), 0)
        rows = tuple(replace(row, defense_args=f"{row.defense_args};on={tuple(on)}") for row in one.findings)
        defense = {"name": "gaussian", "epsilon": 8.0 + number, "on": on}
        cells.append(replace(one, findings=rows, description={**one.description, "defense": defense}))
    text = text_of(store(tmp_path / "run", cells))
    assert "on=GlobalNodes+ModelUpdate" in text.replace("\\", "") and "['GlobalNodes" not in text


def test_two_graphs_of_one_name_are_told_apart_and_never_compared(tmp_path: Path) -> None:
    """A generated graph in two sizes was one section of the report, with rows that nobody could tell apart, and what
    a defense costs on the one was the accuracy without it on the other."""
    cells = []
    for nodes, defenses in ((60, DEFENSES[:1]), (80, DEFENSES[2:])):
        for defense in defenses:
            one = make_cell(PROTOCOLS[0], defense, 0)
            rows = tuple(replace(row, dataset="csbm") for row in one.findings)
            drawn = {"name": "csbm", "csbm": {"nodes": nodes, "edges": 120}}
            cells.append(replace(one, findings=rows, description={**one.description, "dataset": drawn}))
    text = text_of(store(tmp_path / "run", cells))
    assert "csbm (nodes=60)" in text and "csbm (nodes=80)" in text and "edges=120" not in text
    assert re.search(r"On csbm \(nodes=60\)[^\n]*without a defense; no defense of it has a result here", text)


def elsewhere(cell: CellRecord, name: str) -> CellRecord:
    """Return the record as if of another data set."""
    own = f"{name:x>8}".encode().hex()[:16]
    rows = tuple(replace(row, dataset=name, cell=own) for row in cell.findings)
    return replace(cell, cell=own, findings=rows, description={**cell.description, "dataset": {"name": name}})


def test_where_an_observer_gets_least_is_a_setting_on_the_same_data(tmp_path: Path) -> None:
    """The least of all data sets stood there without its own: of another graph, and with no name that tells."""
    bare, defended = (make_cell(PROTOCOLS[0], defense, 0) for defense in (DEFENSES[0], DEFENSES[2]))
    text = text_of(store(tmp_path / "apart", [bare, elsewhere(defended, "other")]))
    assert "Least against this observer" not in text
    text = text_of(store(tmp_path / "beside", [bare, defended, elsewhere(defended, "other")]))
    least = re.findall(r"Least against this observer: (.*)", text)
    assert least and all(" on csbm-cora, dirichlet" in line and "other" not in line for line in least)


def test_what_is_said_of_a_guarantee_names_the_data_where_there_are_several(tmp_path: Path) -> None:
    """Verified on one graph and claimed on the other, "gaussian epsilon=8: verified" was a word on both."""
    cells = [elsewhere(make_cell(PROTOCOLS[0], DEFENSES[2], 0), name) for name in ("first", "second")]
    text = text_of(store(tmp_path / "run", cells))
    said = [line for line in text.splitlines() if "ifferentially private with" in line]
    assert said and all(" on first, dirichlet" in line and " on second, dirichlet" in line for line in said)


def test_an_alarm_of_failures_says_where_and_why(tmp_path: Path) -> None:
    text = text_of(store(tmp_path / "run", [_failed(make_cell(PROTOCOLS[0], DEFENSES[2], 0))]))
    assert "1 finding failed (fedgcn, gaussian: it broke): nothing is known" in text


def test_as_many_fields_as_it_takes_tell_graphs_of_one_name_apart() -> None:
    made = make_cell(PROTOCOLS[0], DEFENSES[0], 0)
    drawn = [(60, 120, 8), (60, 150, 9), (80, 150, 9)]
    cells = [
        replace(
            elsewhere(made, "csbm"),
            description={"dataset": {"name": "csbm", "csbm": {"nodes": n, "edges": e, "dimensions": d}}},
        )
        for n, e, d in drawn
    ]
    assert names_apart(cells) == [f"csbm (nodes={n}, edges={e})" for n, e, _ in drawn]
    assert names_apart(cells[1:]) == ["csbm (nodes=60)", "csbm (nodes=80)"]
    assert names_apart([cells[0], elsewhere(made, "cora")]) == ["csbm", "cora"]


def test_alarms_lead_to_a_section_that_says_something_of_them(tmp_path: Path) -> None:
    """The link below a missing assurance led to "Nothing failed"."""
    record = make_cell(PROTOCOLS[0], DEFENSES[2], 0)
    rows = tuple(replace(row, guarantee="refuted") for row in record.findings if row.status is Status.OK)
    for name, one in (("refuted", replace(record, findings=rows)), ("failed", _failed(record))):
        write_report(folder := store(tmp_path / name, [one]))
        page = (folder / "report.html").read_text("utf-8")
        alarm = page[page.index('class="alarm"') :].split("</section>")[0]
        assert ('href="#failures"' in alarm) == (name == "failed") == ("Nothing failed, and" not in page)
        assert ('href="#epsilons"' in alarm) == ('id="epsilons"' in page)


def _failed(record: CellRecord) -> CellRecord:
    rows = [replace(row, status=Status.FAILED, reason="it broke") for row in record.findings[:1]]
    return replace(record, findings=(*rows, *record.findings[1:]))
