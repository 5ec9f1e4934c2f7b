"""What a gate calls the settings of a run."""

from __future__ import annotations

from collections.abc import Sequence

from fglaudit.reports.labels import Labels, place
from fglaudit.reports.summary import Setting


def name_all(settings: Sequence[Setting], labels: Labels) -> str:
    """Name settings, each place once."""
    places: dict[str, list[str]] = {}
    for setting in settings:
        places.setdefault(place(setting), []).append(labels.setting(setting))
    return "; ".join(f"{'; '.join(names)} on {where}" for where, names in places.items())


def name_one(setting: Setting, labels: Labels) -> str:
    """Name one setting and its place."""
    return name_all([setting], labels)
