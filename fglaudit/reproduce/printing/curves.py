"""Rows of a figure as lines in SVG, placed as :mod:`fglaudit.reproduce.printing.panels` says.

Upwards lies the figure, with its standard deviation over seeds; an open dot is the paper's number where it prints one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from fglaudit.reproduce.printing.axes import Axis
from fglaudit.reproduce.printing.panels import Line, Panel, panels_of
from fglaudit.reproduce.rounds import ROUND, UPDATE
from fglaudit.reproduce.run import Compared

_COLUMNS, _WIDTH, _HEIGHT, _TOP, _LINE = 3, 310, 250, 34, 18
_LEFT, _RIGHT, _ABOVE, _BELOW = 52, 12, 28, 42
"""Of a panel, around its axes."""
_COLOURS = ("#1d4ed8", "#dc2626", "#15803d", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4b5563")
_DASHES = ("", "7 3", "2 2")
_WIDE = 50
"""Numbers that are so many times apart lie on a logarithmic axis; rounds and accuracies never do."""


def curves(title: str, rows: Sequence[Compared]) -> str:
    """Return the figure."""
    panels = panels_of(rows)
    methods = list(dict.fromkeys(line.method for lines in panels.values() for line in lines))
    styles = {method: _style(number) for number, method in enumerate(methods)}
    columns = min(_COLUMNS, len(panels))
    width = max(columns * _WIDTH, 2 * _WIDTH)
    legend, below = _legend(styles, width)
    height = below + _HEIGHT * -(-len(panels) // columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-size="15">{escape(title)}</text>',
        legend,
    ]
    for number, (panel, lines) in enumerate(panels.items()):
        down, right = divmod(number, columns)
        parts.append(f'<g transform="translate({right * _WIDTH} {below + down * _HEIGHT})">')
        alike = [each for other, each in panels.items() if other.upwards == panel.upwards]
        parts += [_panel(panel, lines, [line for each in alike for line in each], styles), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _style(number: int) -> str:
    colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number // len(_COLOURS) % len(_DASHES)]
    return f'stroke="{colour}" stroke-width="1.6" fill="none"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _legend(styles: Mapping[str, str], width: int) -> tuple[str, int]:
    """Return a key to the lines in columns, and where it ends."""
    columns = width // _WIDTH
    parts = []
    for number, (method, style) in enumerate(styles.items()):
        x, y = 8 + number % columns * _WIDTH, _TOP + number // columns * _LINE
        parts.append(f'<path d="M{x} {y + 4}h22" {style}/><text x="{x + 28}" y="{y + 8}">{escape(method)}</text>')
    return "".join(parts), _TOP + _LINE * -(-len(styles) // columns) + 4


def _panel(panel: Panel, lines: Sequence[Line], alike: Sequence[Line], styles: Mapping[str, str]) -> str:
    """Return the panel; ``alike`` are the lines that share its scale upwards."""
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BELOW
    xs = [x for line in lines for x in line.xs]
    across = Axis.around(xs, _LEFT, right, logarithmic=panel.axis not in (ROUND, UPDATE) and _far_apart(xs))
    figures = [v for line in alike for row in line.rows for v in _reach(row)]
    up = Axis.around(figures, bottom, _ABOVE, logarithmic=panel.unit != "percent" and _far_apart(figures))
    metric = panel.metric if panel.metric == panel.unit else f"{panel.metric}, {panel.unit}"
    parts = [
        f'<text x="{_LEFT}" y="13" font-weight="bold">{escape(panel.title)}</text>',
        f'<text x="{_LEFT}" y="24" fill="#4b5563">{escape(metric)}</text>',
        f'<path d="M{_LEFT} {_ABOVE}V{bottom}H{right}" stroke="#6b7280" fill="none"/>',
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{bottom + 30}" text-anchor="middle">{escape(panel.axis)}</text>',
    ]
    for tick in across.ticks():
        x = across.at(tick)
        parts.append(f'<path d="M{x:.1f} {bottom}v4" stroke="#6b7280"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks():
        y = up.at(tick)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    return "".join([*parts, *(_line(line, across, up, styles[line.method]) for line in lines)])


def _far_apart(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= _WIDE


def _reach(row: Compared) -> Iterable[float]:
    """Yield what must lie on the axis of figures."""
    mean, spread = row.mean or 0.0, row.spread or 0.0
    yield from (mean - spread, mean + spread)
    if row.row.mean is not None:
        yield row.row.mean


def _line(line: Line, across: Axis, up: Axis, style: str) -> str:
    """Return one line with its points; a level line has none."""
    if not line.xs:
        level = "".join(
            f'<path d="M{across.start} {up.at(row.mean or 0.0):.1f}H{across.end}" {style}/>' for row in line.rows
        )
        theirs = [row.row.mean for row in line.rows if row.row.mean is not None]
        return level + "".join(_dot(across.end, up.at(mean), style, filled=False) for mean in theirs)
    places = [(across.at(x), up.at(row.mean or 0.0)) for x, row in zip(line.xs, line.rows, strict=True)]
    parts = (
        [f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" {style}/>'] if len(places) > 1 else []
    )
    for (x, y), row in zip(places, line.rows, strict=True):
        mean, spread = row.mean or 0.0, row.spread or 0.0
        if spread:
            parts.append(f'<path d="M{x:.1f} {up.at(mean - spread):.1f}V{up.at(mean + spread):.1f}" {style}/>')
        if row.row.mean is not None:
            parts.append(_dot(x, up.at(row.row.mean), style, filled=False))
        parts.append(_dot(x, y, style, filled=True))
    return "".join(parts)


def _dot(x: float, y: float, style: str, *, filled: bool) -> str:
    colour = style.split('"')[1]
    paint = f'fill="{colour}"' if filled else f'fill="white" stroke="{colour}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2.5 if filled else 4}" {paint}/>'
