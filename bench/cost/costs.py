"""What cells take, as the table that ``fglaudit run --dry-run`` foretells from; to be measured after a change of speed.

Prints :mod:`fglaudit.execution.forecast.costs` anew. How far off the estimates are then says ``python -m bench
estimates``.
"""

from __future__ import annotations

from pathlib import Path

from bench.cost import estimates


def run(results: Path) -> None:
    """Measure what is missing in ``results`` and print the table."""
    estimates.run(results, calibrate=True)
