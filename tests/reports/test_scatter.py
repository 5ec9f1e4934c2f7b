"""The figure: names of lines and of settings keep clear of marks."""

from __future__ import annotations

import re

from fglaudit.reports.figures.frame import Line, Point
from fglaudit.reports.figures.scatter import scatter
from fglaudit.reports.figures.svg import NUM_COLOURS, mark, marker


def drawn(*xs: float, line: float, more: float | None = None) -> str:
    points = [Point(x, 0.1, 0.0, 1.0, None, 0, 0, f"p{i}", "tip") for i, x in enumerate(xs)]
    lines = [Line(at, "chance: 1 of 7 classes") for at in (line, more) if at is not None]
    return str(scatter(points, "name", 1140, 420, labelled=True, lines=lines))


def sides(svg: str) -> list[str]:
    found = re.findall(r'reference-name" transform="[^"]*" dy="([^"]*)em"', svg)
    return ["left" if each.startswith("-") else "right" for each in found]


def side(svg: str) -> str:
    (found,) = sides(svg)
    return found


def test_names_of_lines_that_lie_close_stand_on_either_side() -> None:
    assert sides(drawn(0.2, 0.8, line=0.5, more=0.505)) == ["left", "right"]
    assert sides(drawn(0.2, 0.8, line=0.505, more=0.5)) == ["right", "left"]
    assert sides(drawn(0.2, 0.8, line=0.3, more=0.5)) == ["left", "left"]


def test_a_lines_name_stands_where_fewer_marks_cover_it() -> None:
    assert side(drawn(0.2, 0.8, line=0.5)) == "left"
    assert side(drawn(0.2, 0.495, 0.8, line=0.5)) == "right"
    assert side(drawn(0.2, 0.508, 0.8, line=0.5)) == "left"


def test_a_lines_name_stands_at_the_top_where_marks_lie_low_on_both_sides() -> None:
    def heights(y: float) -> list[float]:
        at = ((0.3, 0.9), (0.494, y), (0.506, y), (0.9, 0.1))
        points = [Point(x, where, where - 0.05, where + 0.05, None, 0, 0, "p", "tip") for x, where in at]
        svg = str(scatter(points, "name", 1140, 420, labelled=False, lines=[Line(0.5, "chance")]))
        return [float(found) for found in re.findall(r'reference-name" transform="translate\([\d.]+ ([\d.]+)\)', svg)]

    (low,), (high,) = heights(0.9), heights(0.06)
    assert low == 420 - 46 - 6 and high < 100


def test_a_lines_name_keeps_clear_of_the_words_at_the_line_of_the_guess() -> None:
    points = [Point(x, 0.9, 0.8, 1.0, None, 0, 0, "p", "tip") for x in (0.13, 0.78)]
    svg = str(scatter(points, "name", 350, 380, labelled=False, lines=[Line(0.84, "all data in one place: no option")]))
    (guess,) = re.findall(r'y="([\d.]+)" dy="-.4em" text-anchor="end">a guess<', svg)
    (base,) = re.findall(r'reference-name" transform="translate\([\d.]+ ([\d.]+)\)', svg)
    assert side(svg) == "right" and float(base) < float(guess) - 18


def test_a_settings_name_keeps_clear_of_a_lines_name() -> None:
    labels = re.findall(r'class="label" x="([\d.]+)" y="[\d.]+">(p\d)<', drawn(0.2, 0.8, line=0.82))
    marks = re.findall(r"<g><title>tip</title>.*?translate\(([\d.]+)", drawn(0.2, 0.8, line=0.82))
    where = {name: float(x) for x, name in labels}
    assert where["p1"] < float(marks[1])  # to its right the line's name stands


def test_a_lines_name_is_broken_where_the_figure_is_too_low_for_it() -> None:
    text = "private-reports hops=(4, 8, 16), features-at-home=own-row: features not tested (81.4 %)"
    points = [Point(0.2, 0.1, 0.0, 1.0, None, 0, 0, "p", "tip")]
    for height, count in ((380, 3), (1000, 1)):
        svg = str(scatter(points, "name", 350, height, labelled=False, lines=[Line(0.5, text)]))
        (name,) = re.findall(r"<text class=.reference-name.*?</text>", svg)
        lines = [re.sub(r"<[^>]*>", "", part) for part in name.split("<tspan")]
        lines = [part.rpartition(">")[2] for part in lines]
        assert len(lines) == count and " ".join(lines) == text
        assert all(6.3 * len(line) <= height - 46 - 16 - 6 for line in lines)


def test_the_spread_of_an_accuracy_stays_within_the_figure() -> None:
    points = [Point(x, 0.1, 0.0, 1.0, 0.2, 0, 0, "p", "tip") for x in (0.3, 0.4)]
    svg = str(scatter(points, "name", 1140, 420, labelled=True))
    bars = re.findall(r'class="error s0" d="[^"]*M([\d.-]+) [\d.]+h([\d.]+)"', svg)
    assert len(bars) == 2
    assert all(float(start) >= 58 and float(start) + float(length) <= 1140 - 16 for start, length in bars)


def test_observers_differ_by_more_than_colour() -> None:
    """Every two of 49 in colour and sign together, every two of the first seven by the sign alone."""
    marks = [str(mark(0, observer)) for observer in range(NUM_COLOURS**2)]
    assert len(set(marks)) == NUM_COLOURS**2
    uncoloured = [re.sub(r"c\d", "", text) for text in marks[:NUM_COLOURS]]
    assert len(set(uncoloured)) == NUM_COLOURS
    hollow = [re.sub(r"s\d", "", str(mark(0, observer, hollow=True))) for observer in range(NUM_COLOURS)]
    assert len(set(hollow)) == NUM_COLOURS and not set(hollow) & set(uncoloured)


def test_a_mark_in_the_figure_is_that_of_the_legend() -> None:
    points = [Point(0.2, 0.1, 0.0, 1.0, None, 1, 2, "p", "tip")]
    assert str(mark(2, 1)) in str(scatter(points, "name", 1140, 420, labelled=True))
    assert str(mark(0, 1)) in str(marker(0, 1))


def test_a_name_is_not_struck_out_by_the_line_of_the_guess() -> None:
    points = [Point(0.2, 0.9, 0.8, 1.0, None, 0, 0, "high", "tip"), Point(0.5, 0.0, 0.0, 0.0, None, 0, 0, "low", "tip")]
    svg = str(scatter(points, "name", 1140, 420, labelled=True))
    [zero] = re.findall(r'class="zero" d="M58 ([\d.]+)H', svg)
    [base] = re.findall(r'class="label" x="[\d.]+" y="([\d.]+)">low<', svg)
    assert not float(base) - 10 <= float(zero) <= float(base) + 3


def test_marks_that_stand_aside_have_their_whiskers_at_their_accuracy() -> None:
    """On a phone a mark of 63 % stood at 70 %, and so did its spread."""
    points = [Point(0.5, 0.5, 0.4, 0.6, 0.05, colour, 0, "p", "tip") for colour in range(4)]
    points.append(Point(0.9, 0.1, 0.0, 0.2, None, 0, 0, "far", "tip"))
    svg = str(scatter(points, "name", 350, 380, labelled=False))
    marks = re.findall(r'd="([^"]*)"/><g transform="translate\(([\d.]+)', svg)[:4]
    spreads = {re.findall(r"M([\d.]+) [\d.]+h([\d.]+)$", path)[0] for path, _ in marks}
    assert len({x for _, x in marks}) == 4 and len(spreads) == 1, "marks apart, spreads at one place"
    ((left, width),) = spreads
    place = float(left) + float(width) / 2
    for path, x in marks:
        lead = re.match(r"M([\d.]+) [\d.]+H([\d.]+)", path)
        assert (lead is None) is (abs(float(x) - place) < 0.5)
        assert lead is None or (abs(float(lead[1]) - place) < 0.2 and lead[2] == x), "a line to where it belongs"
