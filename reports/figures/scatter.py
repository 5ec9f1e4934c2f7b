"""The privacy-utility plot: accuracy against the advantage of every observer's strongest attack, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from fglaudit.reports.figures.frame import Frame, Line, Point, axes
from fglaudit.reports.figures.svg import NUM_COLOURS, mark

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""


def scatter(
    points: Sequence[Point], name: str, width: int, height: int, *, labelled: bool, lines: Sequence[Line] = ()
) -> Markup:
    """Return the plot; every mark has its text as a tooltip, ``name`` is what a screen reader says of the whole."""
    frame = Frame.around(points, lines, width, height)
    spots = _apart([(frame.px(p.x), frame.py(p.y)) for p in points])
    guess = (frame.width - frame.right - 52, frame.py(0) - 18, frame.width - frame.right, frame.py(0))
    covered = [*(_extent(point, spot, frame) for point, spot in zip(points, spots, strict=True)), guess]
    references, names = _references(lines, frame, covered)
    parts = [
        *axes(frame),
        *references,
        *(_mark(p, spot, frame) for p, spot in zip(points, spots, strict=True)),
    ]
    if labelled:
        zero = (frame.left, frame.py(0) - 1, frame.width - frame.right, frame.py(0) + 1)  # it would strike names out
        parts += _labels(points, spots, frame, [*covered, *names, zero])
    return Markup(
        '<svg class="plot" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">{3}</svg>'
    ).format(width, height, name, Markup("").join(parts))


def _mark(point: Point, spot: tuple[float, float], frame: Frame) -> Markup:
    x, y = spot
    place = frame.px(point.x)
    lines = f"M{place:.1f} {y:.1f}H{x:.1f}" if abs(x - place) >= 0.1 else ""
    if point.low is not None and point.high is not None:
        low, high = frame.py(point.low), frame.py(point.high)
        lines += f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 3:.1f} {low:.1f}h6M{x - 3:.1f} {high:.1f}h6"
    if point.x_sd:
        half = frame.px(point.x + point.x_sd) - place
        lines += f"M{place - half:.1f} {y:.1f}h{2 * half:.1f}"
    return Markup(
        '<g><title>{}</title><path class="error s{}" d="{}"/><g transform="translate({:.1f} {:.1f})">{}</g></g>'
    ).format(
        point.tooltip, point.colour % NUM_COLOURS, lines, x, y, mark(point.shape, point.colour, hollow=point.hollow)
    )


def _references(lines: Sequence[Line], frame: Frame, covered: Sequence[Box]) -> tuple[list[Markup], list[Box]]:
    """Vertical lines with their names along them, read from below: to the left at the bottom, unless marks, names and
    other lines cover less of it to the right or at the top; and the areas of the names."""
    low = frame.height - frame.bottom
    parts, names = list[Markup](), list[Box]()
    drawn = [(frame.px(line.x) - 1, frame.top, frame.px(line.x) + 1, low) for line in lines]
    for number, line in enumerate(lines):
        x = frame.px(line.x)
        others = [*covered, *names, *drawn[:number], *drawn[number + 1 :]]
        said = _broken(line.text, low - 6 - frame.top)
        long, wide = _LETTER * max(map(len, said)), 15 + 13 * (len(said) - 1)
        places = [
            (start, base - long, start + wide, base)
            for base in (low - 6, frame.top + long)
            for start in (x - 1 - wide, x + 1)
            if start + wide < frame.width
        ]
        names.append(min(places, key=lambda place: sum(_shared(place, box) for box in others)))
        base, turned = names[-1][3], names[-1][0] > x
        parts.append(Markup('<path class="reference" d="M{0:.1f} {1}V{2}"/>').format(x, frame.top, low))
        # Of several lines the last stands beside the dashes on the left, the first on the right.
        first = "1.1" if turned else f"-{0.35 + 1.15 * (len(said) - 1):g}".replace("0.", ".", 1)
        parts.append(
            Markup(
                '<text class="reference-name" transform="translate({:.1f} {:.1f}) rotate(-90)" dy="{}em">{}</text>'
            ).format(
                x,
                base,
                first,
                Markup('<tspan x="0" dy="1.15em">').join(map(escape, said)) + _CLOSED * (len(said) - 1),
            )
        )
    return parts, names


_LETTER = 6.3
"""Pixels of a letter of a line's name, a little more than the mean."""
_CLOSED = Markup("</tspan>")


def _broken(text: str, room: float) -> list[str]:
    """Return ``text`` in as few lines as fit into ``room`` pixels each, broken between words."""
    most, lines = max(int(room / _LETTER), 1), [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(longer) > most:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _apart(spots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Shift marks sideways where they would cover one another."""
    placed: list[tuple[float, float]] = []
    in_band: dict[int, list[tuple[float, float]]] = {}  # bands of 9 pixels' height: only marks of three can touch
    for x, y in spots:
        band = int(y // 9)
        near = [a for b in (band - 1, band, band + 1) for a, other in in_band.get(b, ()) if abs(y - other) < 9]
        shifts = (step * sign * 9 for step in range(8) for sign in (1, -1))
        clear = (dx for dx in shifts if all(abs(x + dx - a) >= 9 for a in near))
        placed.append((x + next(clear, 0), y))
        in_band.setdefault(band, []).append(placed[-1])
    return placed


def _labels(
    points: Sequence[Point], spots: Sequence[tuple[float, float]], frame: Frame, covered: Sequence[Box]
) -> list[Markup]:
    """Name every setting once, beside its highest mark and clear of what is ``covered``; a name that fits nowhere is
    left out (its tooltip remains)."""
    taken = list(covered)
    named: set[tuple[str, int]] = set()
    placed = []
    for point, (x, y) in sorted(zip(points, spots, strict=True), key=lambda pair: pair[1][1]):
        wide = 6.6 * len(point.label)
        extent = _extent(point, (x, y), frame)
        sides = (
            (extent[2] + 4, y + 4),
            (extent[0] - 4 - wide, y + 4),
            (x - wide / 2, extent[1] - 5),
            (x - wide / 2, extent[3] + 13),
        )
        for left, base in () if (point.label, point.shape) in named else sides:
            box = (left, base - 10, left + wide, base + 3)
            inside = (
                frame.left <= box[0]
                and box[2] <= frame.width - 4
                and box[1] >= 0
                and box[3] <= frame.height - frame.bottom
            )
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                named.add((point.label, point.shape))
                placed.append(
                    Markup('<text class="label" x="{}" y="{}">{}</text>').format(
                        f"{left:.1f}", f"{base:.1f}", point.label
                    )
                )
                break
    return placed


def _extent(point: Point, spot: tuple[float, float], frame: Frame) -> Box:
    """The area that a mark and its whiskers cover."""
    x, y = spot
    place = frame.px(point.x)
    half = frame.px(point.x + (point.x_sd or 0.0)) - place
    high, low = (y if end is None else frame.py(end) for end in (point.high, point.low))
    return min(x - 7, place - half), min(y - 7, high), max(x + 7, place + half), max(y + 7, low)


def _shared(a: Box, b: Box) -> float:
    """Return the area that two boxes have in common."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
