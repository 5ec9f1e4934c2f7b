"""What reports say of graphs that users bring: a guess that is right already, one client per node, attacks that fail
their self-test."""

from __future__ import annotations

from dataclasses import replace

from report_runs import DEFENSES, PROTOCOLS, make_cell

from fglaudit.finding import CellRecord, Status
from fglaudit.reports.achieved import achieved, briefly
from fglaudit.reports.answers import AnswerWord
from fglaudit.reports.labels import Labels, place
from fglaudit.reports.records import Run
from fglaudit.reports.summary import summarize
from fglaudit.reports.verdict import RunVerdict, make_verdict


def judged(*cells: CellRecord) -> RunVerdict:
    run = Run("own", cells, planned=True)
    settings = summarize(run)
    return make_verdict(run, settings, Labels.of(settings))


def test_where_a_guess_is_right_already_the_reason_is_that_and_no_defense_elsewhere() -> None:
    """Features that are the same for everybody: attacks ran, and there was nothing to learn."""
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[1])
    guessed = replace(
        cell,
        clusters={},
        findings=tuple(
            replace(f, value=1.0, control=1.0, advantage=None, advantage_low=None, advantage_high=None)
            for f in cell.findings
        ),
    )
    idle = make_cell(PROTOCOLS[2], DEFENSES[2], 0, observers=[1])
    refused = tuple(replace(f, accuracy=None, reason="noise on it protects nothing") for f in idle.findings)
    [observer] = judged(guessed, replace(idle, findings=refused)).observers
    assert observer.word == AnswerWord.NOT_TESTED
    assert "a guess without any message is right already" in observer.headline
    assert "4 comparisons" in observer.detail and "protects nothing" not in observer.detail
    assert "unknown" not in observer.detail


def test_the_attack_that_failed_its_self_test_is_named() -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[2])
    verdict = judged(cell)
    assert verdict.alarms[0].startswith("1 finding comes from an attack that failed its self-test (box-propagation):")
    assert "from a broken attack (box-propagation)." in verdict.observers[0].detail
    other = replace(cell.findings[0], status=Status.BROKEN_ATTACK)
    both = judged(replace(cell, findings=(other, *cell.findings[1:]))).alarms[0]
    assert "2 findings come from attacks that failed their self-tests (subset-sum, box-propagation):" in both


def test_cells_of_one_client_per_node_are_one_place_whether_they_ran_or_not() -> None:
    """A cell that failed never opened its graph: the number of clients that names it is one that nobody asked for."""
    ran, failed = (
        replace(cell, findings=tuple(replace(f, partition="per-node", clients=clients) for f in cell.findings))
        for cell, clients in ((make_cell(PROTOCOLS[0], DEFENSES[0], seed), n) for seed, n in ((0, 24), (1, 10)))
    )
    [setting] = summarize(Run("own", (ran, failed), planned=True))
    assert place(setting) == "csbm-cora, per-node" and setting.seeds == (0, 1)


def test_another_seed_brings_no_other_clients_where_the_graph_names_them() -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0], parties=3)
    for partition, redrawn in (("dirichlet;beta=1", True), ("per-node", False), ("given", False)):
        named = replace(cell, findings=tuple(replace(f, partition=partition) for f in cell.findings))
        [setting] = summarize(Run("own", (named,), planned=True))
        assert {leak.redrawn for leak in setting.leaks} == {redrawn}, partition


def test_a_metric_of_its_own_is_said_beside_exact_rows() -> None:
    """Every row up to its factor: "leaks 0 % exact, F1 0.999 (0.999)" said nothing of that."""
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[1])
    found = replace(cell.findings[0], metric="direction_rate", value=1.0, control=0.0, exact_rate=0.0, f1=0.9)
    [setting] = summarize(Run("own", (replace(cell, findings=(found,)),), planned=True))
    [leak] = setting.leaks
    brief, full = (words.replace("\u202f", " ") for words in (briefly(leak), achieved(leak)))
    assert brief.startswith("0 % exact, ") and brief.endswith(" 100 % (0 %)") and "F1" not in brief
    assert full.index(" 100 % (0 %)") < full.index("F1")


def test_rows_without_a_zero_are_told_by_their_cosine_and_not_by_an_f1_that_a_guess_has() -> None:
    """Real-valued features: which entries are not zero is known beforehand."""
    cell = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[1])
    row = replace(cell.findings[0], exact_rate=0.0, f1=0.998, control_f1=0.996, cosine=0.93, control_cosine=0.01)
    near = replace(row, metric="cosine", value=0.93, control=0.01)
    for found in (near, replace(row, metric="exact_rate", value=0.0)):
        [setting] = summarize(Run("own", (replace(cell, findings=(found,)),), planned=True))
        [leak] = setting.leaks
        assert briefly(leak).replace("\u202f", " ") == "0 % exact, cosine 0.930 (0.010)"
        assert "cosine 0.93 (0.01)" in achieved(leak) and "F1" not in achieved(leak)
