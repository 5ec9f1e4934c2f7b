"""The page's figures as SVG files of their own, ``figure-1.svg`` and so on, one per data set and partition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from fglaudit.reports.figures.svg import NUM_COLOURS, mark
from fglaudit.reports.formats.pages import Section
from fglaudit.reports.formats.png import draws
from fglaudit.reports.wording.observers import observer_label

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c08400", "#3a9ad6", "#7f7f7f")
_MARKS = "".join(f".c{i}{{fill:{_COLOURS[i]}}}.s{i}{{stroke:{_COLOURS[i]}}}" for i in range(NUM_COLOURS))
STYLE = (
    "text{font:12px sans-serif;fill:#5a636e}text.axis{fill:#1b1f24;font-size:13px}"
    "text.label,text.reference-name{font-size:11.5px;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    "text.label{fill:#1b1f24}.grid{stroke:#dde1e6;fill:none}.zero{stroke:#5a636e;stroke-width:1.2;fill:none}"
    ".point{stroke:#fff;stroke-width:1}.hollow{fill:#fff;stroke-width:1.8}"
    ".sign{fill:none;stroke:#fff;stroke-width:1.7}"
    ".error{fill:none;stroke-width:1.5;opacity:.8}"
    ".reference{stroke:#5a636e;stroke-width:1.2;stroke-dasharray:5 4;fill:none}"
    ".ink{fill:none;stroke:#1b1f24;stroke-width:1.2}" + _MARKS
)
"""The light colours of the page: papers are white."""


_LINE = 20
"""Pixels between lines of the legend."""


def figure_files(
    sections: Sequence[Section], observers: Sequence[tuple[str, str]], size: tuple[int, int]
) -> dict[str, str]:
    """Return the text of every figure, with its legend, by file name; a section without a figure has none.

    Args:
        observers: of the whole run; their places are their colours.
        size: of the figures without the legend.
    """
    drawn = [section for section in sections if section.figure is not None]
    return {f"figure-{n}.svg": _file(section, observers, size) for n, section in enumerate(drawn, 1)}


def _file(section: Section, observers: Sequence[tuple[str, str]], size: tuple[int, int]) -> str:
    assert section.figure is not None
    (width, height), shapes = size, section.figure.shapes
    marks = [(mark(0, observers.index(o)), observer_label(o)) for o in section.observers]
    marks += [(mark(shape, None), protocol) for protocol, shape in shapes]
    legend, down = _legend(marks, section.title, width)
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}"><style>{2}</style>'
        '<rect width="{0}" height="{1}" fill="#fff"/>{3}<g transform="translate(0 {4})">{5}</g></svg>\n'
    ).format(width, height + down, Markup(STYLE), legend, down, section.figure.plots[0])


def _legend(marks: Sequence[tuple[Markup, str]], title: str, width: int) -> tuple[Markup, int]:
    """Return the title, the marks with their names in as many lines as they need, and the height of all that."""
    parts = [Markup('<text class="axis" x="12" y="18">{}</text>').format(title)]
    x, y = 18, 18 + _LINE
    for drawn, name in marks:
        long = 28 + 7 * len(name)  # of 12 pixels' type, generously
        if x + long > width and x > 18:
            x, y = 18, y + _LINE
        parts.append(
            Markup('<g transform="translate({} {})">{}</g><text x="{}" y="{}">{}</text>').format(
                x, y - 4, drawn, x + 10, y, name
            )
        )
        x += long
    return Markup("").join(parts), y + 8


def remove_older(folder: Path, kept: Sequence[str]) -> None:
    """Remove figures of an earlier report of the same run that this one no longer has. PNG files that this machine
    cannot draw may be the user's own."""
    for suffix in (".svg", ".png") if draws() else (".svg",):
        for path in folder.glob(f"figure-*{suffix}"):
            if path.name not in kept and path.stem.removeprefix("figure-").isdigit():
                path.unlink()
