"""Protocols that ended far below what the same run reached without any feature message: training may have failed.

Compared are undefended settings with the best of their run that sends no feature, such as the same protocol with 0 hops
or its local version (:func:`fglaudit.reports.choosing.accuracy_gains.gains`), on the same seeds and test nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from fglaudit.reports.choosing.accuracy_gains import gains
from fglaudit.reports.labels import Labels
from fglaudit.reports.summary import Setting

FAR = 0.05
"""Accuracy by which a setting is far below another, if the interval of the difference lies below 0 too."""
FIX = "if it trained with sgd, set optimizer: adam and learning_rate: 0.01; else try more rounds or another rate"


def underperforming(settings: Sequence[Setting], labels: Labels) -> list[str]:
    """Return one line per setting, in their order; nothing where the run has nothing to compare with."""
    found = gains(settings, labels)
    lines = []
    for setting in settings:
        gain = found.get(setting.key)
        if gain is None or not setting.undefended or gain.gain > -FAR or gain.high >= 0:
            continue
        lines.append(
            f"{labels.placed(setting)} ended {-100 * gain.gain:.1f} points below {gain.control},"
            f" which sends no feature: its training may have failed; {FIX}"
        )
    return lines
