"""Figure of FedGAT's theorems: measured errors and bounds against the degree, as SVG without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

COLORS = {"bounds": "#1b6ca8", "initial": "#6a994e", "trained-bounded": "#bc6c25", "trained": "#9d0208"}
PANELS = (
    ("series, Theorem 2", "series_error"),
    ("attention coefficients (relative), Theorem 3", "coefficient_error"),
    ("first layer, Theorem 4", "layer_1_error"),
    ("second layer, Theorem 5", "layer_2_error"),
)
RATIOS = {
    "coefficient_error": "theorem_3_ratio",
    "layer_1_error": "theorem_4_ratio",
    "layer_2_error": "theorem_5_ratio",
}
WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 190, 55, 60, 80


def draw(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the figure of a table of ``bench.fedgat.theory``: one panel per theorem, solid lines measured, dashed ones
    the bound."""
    degrees = sorted({int(row["degree"]) for row in rows})
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * (WIDTH + GAP) + 30}" height="{2 * (HEIGHT + GAP) + 20}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="13">FedGAT on Cora: largest error against the degree p '
        "(solid: measured, dashed: the theorem's bound)</text>",
    ]
    for i, (model, color) in enumerate(COLORS.items()):
        x = LEFT + 140 * i
        parts.append(f'<line x1="{x}" y1="34" x2="{x + 18}" y2="34" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 24}" y="38">{model}</text>')
    for i, (title, column) in enumerate(PANELS):
        x, y = LEFT + i % 2 * (WIDTH + GAP), TOP + i // 2 * (HEIGHT + GAP)
        parts += _panel(title, column, rows, degrees, x, y)
    return "\n".join([*parts, "</svg>", ""])


def _bound(row: Mapping[str, str], column: str) -> float:
    if column == "series_error":
        return float(row["theorem_2"])
    ratio = float(row[RATIOS[column]])
    return float(row[column]) / ratio if ratio > 0 else math.nan  # a negative bound: the theorem's condition fails


def _panel(
    title: str, column: str, rows: Sequence[Mapping[str, str]], degrees: Sequence[int], left: int, top: int
) -> list[str]:
    values = [v for row in rows for v in (float(row[column]), _bound(row, column)) if v > 0]
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    first, last = math.log2(degrees[0]), math.log2(degrees[-1])

    def place(degree: int, value: float) -> str:
        x = left + WIDTH * (math.log2(degree) - first) / (last - first)
        return f"{x:.1f},{top + HEIGHT * (high - math.log10(value)) / (high - low):.1f}"

    parts = [
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>',
        f'<text x="{left}" y="{top - 6}">{title}</text>',
        f'<text x="{left + WIDTH / 2}" y="{top + HEIGHT + 30}" text-anchor="middle">degree p</text>',
    ]
    for power in range(low, high + 1):
        y = top + HEIGHT * (high - power) / (high - low)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    for degree in degrees:
        x = place(degree, 10.0**low).split(",")[0]
        parts.append(f'<text x="{x}" y="{top + HEIGHT + 15}" text-anchor="middle">{degree}</text>')
    for model, color in COLORS.items():
        mine = sorted((row for row in rows if row["model"] == model), key=lambda row: int(row["degree"]))
        for dash, points in (
            ("", [(int(r["degree"]), float(r[column])) for r in mine]),
            (' stroke-dasharray="4 3"', [(int(r["degree"]), _bound(r, column)) for r in mine]),
        ):
            line = " ".join(place(degree, value) for degree, value in points if value > 0)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"{dash}/>')
    return parts
