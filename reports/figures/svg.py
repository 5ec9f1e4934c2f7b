"""Inline SVG, drawn by hand: a few kilobytes instead of a plotting library's megabytes, styled by the page, no scripts.

Colours and line styles are classes (``c0`` ... ``c6``) that the page's style sheet fills in for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

NUM_COLOURS = 7
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "down", "plus")
PATHS = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "square": "M-4.5 -4.5h9v9h-9z",
    "triangle": "M0 -5.6L5.4 4H-5.4z",
    "diamond": "M0 -6L6 0L0 6L-6 0z",
    "cross": "M-5 -2.5L-2.5 -5L0 -2.5L2.5 -5L5 -2.5L2.5 0L5 2.5L2.5 5L0 2.5L-2.5 5L-5 2.5L-2.5 0z",
    "down": "M0 5.6L5.4 -4H-5.4z",
    "plus": "M-1.8 -5.4h3.6v3.6h3.6v3.6h-3.6v3.6h-3.6v-3.6h-3.6v-3.6h3.6z",
}


SIGNS = (
    "",
    "M-2.6 0h5.2",
    "M0 -2.6v5.2",
    "M-1.2 0a1.2 1.2 0 1 0 2.4 0a1.2 1.2 0 1 0 -2.4 0z",
    "M-1.9 1.9l3.8 -3.8",
    "M-1.9 -1.9l3.8 3.8",
    "M-2.4 0h4.8M0 -2.4v4.8",
)
"""What stands inside a mark beside its colour, which not everybody sees and not every printer prints."""


def mark(shape: int, colour: int | None, *, hollow: bool = False) -> Markup:
    """Return a mark around (0, 0): the shape, and inside of it a sign that goes with the colour; without a colour the
    shape alone is drawn, in the text's colour."""
    outline = PATHS[SHAPES[shape % len(SHAPES)]]
    if colour is None:
        return Markup('<path class="ink" d="{}"/>').format(outline)
    number = colour % NUM_COLOURS
    sign = SIGNS[(colour + colour // NUM_COLOURS) % len(SIGNS)]  # colours that come again come with another sign
    body = Markup('<path class="{}{}" d="{}"/>').format("hollow s" if hollow else "point c", number, outline)
    within = Markup('<path class="sign{}" d="{}"/>').format(f" s{number}" if hollow else "", sign)
    return body + within if sign else body


def marker(shape: int, colour: int | None) -> Markup:
    """Return a mark for legends and headings."""
    return Markup(
        '<svg class="marker" viewBox="-7 -7 14 14" width="14" height="14" aria-hidden="true">{}</svg>'
    ).format(mark(shape, colour))


_SPARK_POINTS = 60
"""Of one line; a page of a thousand settings has a thousand of them."""


def sparkline(values: Sequence[float]) -> Markup:
    """Accuracy over rounds; the axis runs from 0 to 1."""
    width, height = 160, 36
    values = [v for v in values if not math.isnan(v)]
    if len(values) < 2:
        return Markup("")
    most = _SPARK_POINTS
    kept = [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)] if len(values) > most else values
    step = width / (len(kept) - 1)
    points = " ".join(f"{i * step:.1f},{height - 2 - min(max(v, 0), 1) * (height - 4):.1f}" for i, v in enumerate(kept))
    title = (
        f"{len(values)} rounds: from {100 * values[0]:.1f} % to {100 * values[-1]:.1f} %, best"
        f" {100 * max(values):.1f} %"
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img"'
        ' aria-label="{2}"><title>{2}</title><path class="base" d="M0 {3}H{0}"/><polyline class="line"'
        ' points="{4}"/></svg>'
    ).format(width, height, title, height - 1, points)
