"""The page's figures as SVG files of their own, ``figure-1.svg`` and so on, one per data set and partition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fglaudit.reports.figures import NUM_COLOURS
from fglaudit.reports.pages import Section

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
_MARKS = "".join(f".c{i}{{fill:{_COLOURS[i]}}}.s{i}{{stroke:{_COLOURS[i]}}}" for i in range(NUM_COLOURS))
STYLE = (
    "text{font:12px sans-serif;fill:#5a636e}text.axis{fill:#1b1f24;font-size:13px}"
    "text.label,text.reference-name{font-size:11.5px;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    "text.label{fill:#1b1f24}.grid{stroke:#dde1e6;fill:none}.zero{stroke:#5a636e;stroke-width:1.2;fill:none}"
    ".point{stroke:#fff;stroke-width:1}.hollow{fill:#fff;stroke-width:1.8}"
    ".error{fill:none;stroke-width:1.5;opacity:.8}"
    ".reference{stroke:#5a636e;stroke-width:1.2;stroke-dasharray:5 4;fill:none}" + _MARKS
)
"""The light colours of the page: papers are white."""


def figure_files(sections: Sequence[Section]) -> dict[str, str]:
    """Return the text of every figure by file name; a section without a figure has none."""
    drawn = [section.figure for section in sections if section.figure is not None]
    return {
        f"figure-{number}.svg": str(figure.plots[0])
        .replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        .replace(">", f'><style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>', 1)
        + "\n"
        for number, figure in enumerate(drawn, 1)
    }


def remove_older(folder: Path, kept: Sequence[str]) -> None:
    """Remove figures of an earlier report of the same run that this one no longer has."""
    for path in folder.glob("figure-*.svg"):
        if path.name not in kept and path.stem.removeprefix("figure-").isdigit():
            path.unlink()
