"""Ours beside theirs as a dot plot in SVG: one line per row, an open dot for the paper, a full one for ours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fglaudit.reproduce.run import Compared

_WIDTH, _LABELS, _LINE, _TOP = 900, 420, 20, 56
_THEIRS, _OURS = "#6b7280", "#1d4ed8"


def dot_plot(title: str, rows: Sequence[Compared]) -> str:
    """Return the figure; rows of ours are those with a figure, bars are standard deviations over seeds."""
    shown = [row for row in rows if row.values]
    height = _TOP + _LINE * len(shown) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-size="15">{escape(title)}</text>',
        _dot(12, 38, filled=False) + '<text x="22" y="42">paper</text>',
        _dot(72, 38, filled=True) + '<text x="82" y="42">here, mean over seeds with standard deviation</text>',
    ]
    if shown:
        low, high = _range(shown)
        parts += [_line(row, number, low, high) for number, row in enumerate(shown)]
        bottom = _TOP + _LINE * len(shown) + 16
        parts += [
            f'<text x="{_LABELS}" y="{bottom}">{low:g}</text>',
            f'<text x="{_WIDTH - 10}" y="{bottom}" text-anchor="end">{high:g} {escape(shown[0].row.unit)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _range(rows: Sequence[Compared]) -> tuple[float, float]:
    values = [row.row.mean for row in rows if row.row.mean is not None]
    values += [v for row in rows for v in ((row.mean or 0) - (row.spread or 0), (row.mean or 0))]
    values += [(row.mean or 0) + (row.spread or 0) for row in rows]
    room = 0.05 * (max(values) - min(values)) or 1.0
    return round(min(values) - room, 2), round(max(values) + room, 2)


def _line(row: Compared, number: int, low: float, high: float) -> str:
    def at(value: float) -> float:
        return _LABELS + (value - low) / (high - low) * (_WIDTH - 10 - _LABELS)

    y, mean, spread = _TOP + _LINE * number + 8, row.mean or 0.0, row.spread or 0.0
    return "".join(
        (
            f'<line x1="{_LABELS}" x2="{_WIDTH - 10}" y1="{y}" y2="{y}" stroke="#e5e7eb"/>',
            f'<text x="{_LABELS - 8}" y="{y + 4}" text-anchor="end">{escape(row.row.label)}</text>',
            f'<line x1="{at(mean - spread):.1f}" x2="{at(mean + spread):.1f}" y1="{y}" y2="{y}" stroke="{_OURS}"'
            ' stroke-width="3"/>',
            "" if row.row.mean is None else _dot(at(row.row.mean), y, filled=False),
            _dot(at(mean), y, filled=True),
        )
    )


def _dot(x: float, y: float, *, filled: bool) -> str:
    paint = f'fill="{_OURS}"' if filled else f'fill="white" stroke="{_THEIRS}" stroke-width="2"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {paint}/>'
