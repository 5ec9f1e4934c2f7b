"""The measured trade-off curve in a report: where its points lie, what is said beside it, and how large it is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from report_runs import DEFENSES, PROTOCOLS, make_cell, store, texts

from fglaudit.guarantees import Audit, AuditName, MeasuredCurve, Outcome, Verdict, Word
from fglaudit.reports.figures.curve_figure import SIDE, curve_figure, curve_words

CURVE = MeasuredCurve(
    canary="NeighborSums, one number",
    epsilon=1.25,
    ceiling=9.5,
    replays=4000,
    alarms=(1.0, 0.5, 0.1, 0.0),
    hits=(1.0, 0.75, 0.3, 0.0),
    margin=0.05,
    stated_alarms=(0.0, 0.5, 1.0),
    stated_hits=(0.0, 0.8, 1.0),
)


def points(svg: str, name: str) -> list[tuple[float, float]]:
    found = re.search(rf'class="{name}" points="([^"]*)"', svg)
    assert found is not None
    pairs = [pair.split(",") for pair in found.group(1).split()]
    return [(float(x) / SIDE, 1 - float(y) / SIDE) for x, y in pairs]


def test_points_lie_where_the_rates_are() -> None:
    svg = str(curve_figure(CURVE))
    line = points(svg, "line")
    assert line == sorted(line) and any(abs(x - 0.1) < 0.01 and abs(y - 0.3) < 0.01 for x, y in line)
    assert [tuple(round(v, 2) for v in pair) for pair in points(svg, "stated")] == [(0, 0), (0.5, 0.8), (1, 1)]
    band = points(svg, "band")
    assert any(abs(x - 0.05) < 0.01 and abs(y - 0.35) < 0.01 for x, y in band)  # the corner that accuses
    assert any(abs(x - 0.15) < 0.01 and abs(y - 0.25) < 0.01 for x, y in band)  # the one that does not
    assert all(0 <= value <= 1 for pair in band for value in pair)
    assert len(svg) < 2000


def test_words_say_who_saw_what() -> None:
    words = curve_words(CURVE)
    for said in ("White box", "all rounds", "worst-case neighbours", "NeighborSums, one number", "99 % band", "1.25"):
        assert said in words
    assert "nothing was shown" in curve_words(replace(CURVE, epsilon=0.0))


def test_a_report_draws_it_and_prints_mu(tmp_path: Path) -> None:
    audit = Audit(AuditName.TRADE_OFF, Outcome.PASSED, "as stated", 1.0, 0.99, 9.0, CURVE)
    verdict = Verdict(Word.VERIFIED, "seen", epsilon=7.98, claimed=8.0, delta=1e-5, audits=(audit,), mu=1.53)
    folder = store(tmp_path / "run", [replace(make_cell(PROTOCOLS[0], DEFENSES[2], 0), verdict=verdict)])
    html = texts(folder)["report.html"]
    assert str(curve_figure(CURVE)) in html
    assert "μ 1.53" in html and curve_words(CURVE) in html
    plain = texts(store(tmp_path / "plain", [make_cell(PROTOCOLS[0], DEFENSES[2], 0)]))["report.html"]
    assert 'class="curve"' not in plain and "μ 1.53" not in plain
