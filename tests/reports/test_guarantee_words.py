"""Beside an epsilon stands whether it may be believed, wherever one is printed."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import DEFENSES, PROTOCOLS, make_cell, store
from rich.console import Console

from fglaudit.guarantees import Verdict, Word
from fglaudit.reports import write_report
from fglaudit.reports.formats.console import print_answers
from fglaudit.reports.records import load_run


@pytest.mark.parametrize("word", [Word.VERIFIED, Word.CLAIMED])
def test_every_file_and_the_console_say_the_word(tmp_path: Path, word: Word) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0, observers=[0])
    folder = store(tmp_path / "run", [replace(cell, verdict=Verdict(word, reason="so it is."))])
    write_report(folder)
    assert f"7.98 ({word})" in (folder / "report.md").read_text("utf-8")
    assert f"7.98 ({word})" in (folder / "summary.tex").read_text("utf-8")
    assert f'7.98<small class="g-{word}">{word}</small>' in (folder / "report.html").read_text("utf-8")
    said = _console(folder)
    assert f"epsilon {word}" in said and ("not verified" in said) is (word is Word.CLAIMED)


def test_a_verified_epsilon_that_bounds_nothing_says_so(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0, observers=[0])
    rows = tuple(replace(row, epsilon_accounted=40.0) for row in cell.findings)
    judged = replace(cell, findings=rows, verdict=Verdict(Word.VERIFIED, reason="so it is."))
    assert "epsilon verified, yet an epsilon above 10 bounds nothing" in _console(store(tmp_path / "run", [judged]))


def test_a_verified_delta_that_protects_nobody_says_so(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0, observers=[0])
    rows = tuple(replace(row, delta=0.5) for row in cell.findings)
    judged = replace(cell, findings=rows, verdict=Verdict(Word.VERIFIED, reason="so it is."))
    assert judged.nodes > 2
    assert "epsilon verified, yet a delta of 0.5 with" in _console(store(tmp_path / "run", [judged]))


def test_the_console_is_silent_where_nothing_is_promised(tmp_path: Path) -> None:
    assert "epsilon" not in _console(store(tmp_path / "run", [make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0])]))


def _console(folder: Path) -> str:
    console = Console(file=io.StringIO(), width=220)
    print_answers(console, load_run(folder))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]
