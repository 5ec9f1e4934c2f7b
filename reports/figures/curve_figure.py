"""The measured trade-off curve of an audited guarantee beside the stated one, as inline SVG and in words."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from fglaudit.guarantees import BAND, MeasuredCurve
from fglaudit.reports.numbers import epsilon, plural

SIDE = 150
"""Width and height in pixels; rates from 0 to 1 on either axis."""


def curve_figure(curve: MeasuredCurve) -> Markup:
    """Return the picture: false alarms to the right, hits upwards, the band in grey, the stated curve dashed."""
    points = [(0.0, 0.0), *sorted(zip(curve.alarms, curve.hits, strict=True)), (1.0, 1.0)]
    upper = [(alarm - curve.margin, hit + curve.margin) for alarm, hit in points]
    lower = [(alarm + curve.margin, hit - curve.margin) for alarm, hit in points]
    title = f"hits over false alarms, {curve.canary}"
    return Markup(
        '<svg class="curve" viewBox="0 0 {0} {0}" width="{0}" height="{0}" role="img" aria-label="{1}"><title>{1}'
        '</title><path class="base" d="M0 0V{0}H{0}"/><polygon class="band" points="{2}"/><polyline class="stated"'
        ' points="{3}"/><polyline class="line" points="{4}"/></svg>'
    ).format(
        SIDE,
        title,
        _path([*upper, *reversed(lower)]),
        _path(zip(curve.stated_alarms, curve.stated_hits, strict=True)),
        _path(points),
    )


def curve_words(curve: MeasuredCurve) -> str:
    """Say what was measured, by whom, and how sure it is."""
    reach = "" if curve.epsilon > 0 else " (nothing was shown)"
    return (
        f"White box, every release of all rounds, worst-case neighbours ({curve.canary}),"
        f" {plural(curve.replays, 'replay')} per world: hits over false alarms of the best guess, with its"
        f" {100 * BAND:g} % band for all points at once; dashed: what the stated curve allows. Epsilon at least"
        f" {epsilon(curve.epsilon)}{reach}; as many replays could show {epsilon(curve.ceiling)} at most."
    )


def _path(points: Iterable[tuple[float, float]]) -> str:
    """Return pixels of rates, cut off at 0 and 1."""
    return " ".join(f"{SIDE * min(max(x, 0), 1):.0f},{SIDE * (1 - min(max(y, 0), 1)):.0f}" for x, y in points)
