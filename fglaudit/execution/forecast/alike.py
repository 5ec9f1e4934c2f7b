"""Which cells take about as long: those that differ in their seeds or in fractions alone."""

from __future__ import annotations

import json
from typing import Any

from fglaudit.suite.cell import Cell


def setting(cell: Cell) -> str:
    """Return what decides on the costs of a cell, as far as it is known: not its seed, and no fraction such as an
    epsilon or a clip."""
    described = cell.description()
    parts = {key: described[key] for key in ("dataset", "partition", "protocol", "server", "defense")}
    return json.dumps(_without_fractions(parts), sort_keys=True, default=str)


def _without_fractions(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_fractions(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_fractions(one) for one in value]
    return None if isinstance(value, float) else value
