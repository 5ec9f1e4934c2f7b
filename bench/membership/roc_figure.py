"""A log-log ROC figure as SVG, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#5a636e")
LEFT, TOP, SIDE = 60, 40, 320
DECADES = 3


def draw(curves: Mapping[str, Sequence[tuple[float, float]]], title: str) -> str:
    """Return the figure of ``curves``: by name the points (false-positive rate, true-positive rate), 0.1 % to 100 %."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + SIDE + 190}" height="{TOP + SIDE + 55}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="13">{title}: training nodes found</text>',
    ]
    for decade in range(DECADES + 1):
        rate = 10.0 ** (decade - DECADES)
        x, y = _place(rate, rate)
        parts += [
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + SIDE}" stroke="#dde1e6"/>',
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + SIDE}" y2="{y:.1f}" stroke="#dde1e6"/>',
            f'<text x="{x:.1f}" y="{TOP + SIDE + 18}" text-anchor="middle">{100 * rate:g} %</text>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * rate:g} %</text>',
        ]
    (x0, y0), (x1, y1) = _place(10.0**-DECADES, 10.0**-DECADES), _place(1, 1)
    parts += [
        f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="#5a636e" stroke-dasharray="5 4"/>',
        f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 40}" text-anchor="middle">false-positive rate</text>',
        f'<text x="14" y="{TOP + SIDE / 2}" text-anchor="middle" transform="rotate(-90 14 {TOP + SIDE / 2})">'
        "true-positive rate</text>",
    ]
    for index, (name, points) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_place(*point) for point in points))
        y = TOP + 14 + 20 * index
        parts += [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<line x1="{LEFT + SIDE + 14}" y1="{y - 4}" x2="{LEFT + SIDE + 34}" y2="{y - 4}" stroke="{colour}"'
            ' stroke-width="2"/>',
            f'<text x="{LEFT + SIDE + 40}" y="{y}">{name}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _place(fpr: float, tpr: float) -> tuple[float, float]:
    """Return the pixel of a point; rates below the axis lie on it."""
    across, up = (min(1.0, 1 + math.log10(max(rate, 10.0**-DECADES)) / DECADES) for rate in (fpr, tpr))
    return LEFT + SIDE * across, TOP + SIDE * (1 - up)
