"""The frame of the privacy-utility plot: what is drawn in it, where that lies in pixels, and its axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

LOWEST = -0.5
"""Advantage of the lower edge of a figure at the least: how far below a guess an attack is says nothing more."""


@dataclass(frozen=True)
class Point:
    """One observer's strongest attack in one setting; ``colour`` and ``shape`` are indices."""

    x: float
    y: float
    low: float | None
    high: float | None
    x_sd: float | None
    colour: int
    shape: int
    label: str
    tooltip: str
    hollow: bool = False
    """Whether it only says what was seen: of rows that show neither a leak nor its absence."""


@dataclass(frozen=True)
class Line:
    """An accuracy to compare with, as a dashed vertical line; ``x`` is a fraction."""

    x: float
    text: str


@dataclass(frozen=True)
class Frame:
    """Maps data to pixels. Advantages below ``y_low`` are drawn at the lower edge."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: int
    height: int
    left: int = 58
    right: int = 16
    top: int = 16
    bottom: int = 46

    @staticmethod
    def around(points: Sequence[Point], lines: Sequence[Line], width: int, height: int) -> Frame:
        spreads = [p.x + sign * (p.x_sd or 0.0) for p in points for sign in (-1, 1)]
        across = spreads + [line.x for line in lines]
        x_low, x_high = min(across), max(across)
        pad = max(0.1 * (x_high - x_low), 0.02)
        lowest = min(p.y if p.low is None else p.low for p in points)
        highest = max(p.y if p.high is None else p.high for p in points)
        top = 1.04 if highest > 0.4 else max(1.15 * highest, 0.1)
        return Frame(x_low - pad, x_high + pad, max(min(-0.04 * top, lowest - 0.02), LOWEST), top, width, height)

    def px(self, x: float) -> float:
        return self.left + (x - self.x_low) / (self.x_high - self.x_low) * (self.width - self.left - self.right)

    def py(self, y: float) -> float:
        inside = min(max(y, self.y_low), self.y_high)
        return self.top + (self.y_high - inside) / (self.y_high - self.y_low) * (self.height - self.top - self.bottom)


def axes(frame: Frame) -> list[Markup]:
    """Return grid lines, their numbers and the names of the axes."""
    low, high = frame.height - frame.bottom, frame.width - frame.right
    parts = []
    for value in _ticks(max(frame.y_low, -1.0), frame.y_high):
        y = f"{frame.py(value):.1f}"
        kind = "zero" if value == 0 else "grid"
        text = f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "\N{MINUS SIGN}")
        parts.append(Markup('<path class="{}" d="M{} {}H{}"/>').format(kind, frame.left, y, high))
        parts.append(
            Markup('<text x="{}" y="{}" dy=".35em" text-anchor="end">{}</text>').format(frame.left - 7, y, text)
        )
        if value == 0:
            parts.append(Markup('<text x="{}" y="{}" dy="-.4em" text-anchor="end">a guess</text>').format(high - 4, y))
    for value in _ticks(frame.x_low, frame.x_high, max(3, frame.width // 130)):
        x = f"{frame.px(value):.1f}"
        parts.append(Markup('<path class="grid" d="M{} {}V{}"/>').format(x, frame.top, low))
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="middle">{} %</text>').format(x, low + 17, f"{100 * value:g}")
        )
    middle = (frame.left + high) / 2
    parts.append(
        Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">accuracy, client mean</text>').format(
            middle, low + 37
        )
    )
    parts.append(
        Markup(
            '<text class="axis" transform="translate(12 {}) rotate(-90)" text-anchor="middle">advantage over a'
            " guess</text>"
        ).format((frame.top + low) / 2)
    )
    return parts


def _ticks(low: float, high: float, target: int = 5) -> list[float]:
    """Round positions between ``low`` and ``high``."""
    rough = (high - low) / target
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return [round(i * step, 10) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
