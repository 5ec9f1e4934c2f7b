"""Words and marks of the page can be told from what they stand on: WCAG 2.2, level AA, in both schemes."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from fglaudit.reports.figures.svg import NUM_COLOURS
from fglaudit.reports.formats.figure_files import STYLE

CSS = files("fglaudit.reports.templates").joinpath("style.css").read_text("utf-8")
LIGHT, DARK, _ = (dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in CSS.split(":root {")[1:])
MARKS = [f"c{i}" for i in range(NUM_COLOURS)]


def contrast(first: str, second: str) -> float:
    """Return the ratio of WCAG 2.2, "contrast ratio"."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_words_and_marks_are_seen(scheme: dict[str, str]) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    grounds = ("paper", "card", "head", "red-wash", "amber-wash", "calm-wash")
    words = {(word, ground) for word in ("ink", "soft") for ground in grounds}
    words |= {(word, ground) for word in ("red", "amber", "calm", "link") for ground in ("paper", "card")}
    words |= {(word, f"{word}-wash") for word in ("red", "amber", "calm")}
    faint = {pair: ratio for pair in words if (ratio := contrast(scheme[pair[0]], scheme[pair[1]])) < 4.5}
    pale = {mark: ratio for mark in MARKS if (ratio := contrast(scheme[mark], scheme["card"])) < 3}
    assert not faint and not pale


def test_figures_of_their_own_have_the_colours_of_a_light_page() -> None:
    assert re.findall(r"\.c\d\{fill:(#\w{6})\}", STYLE) == [LIGHT[mark] for mark in MARKS]


def test_paper_is_white_whatever_the_screen_prefers() -> None:
    """Light ink of a dark scheme would be printed on white."""
    assert re.findall(r"@media ([^{]*prefers-color-scheme[^{]*)\{", CSS) == ["screen and (prefers-color-scheme: dark) "]
