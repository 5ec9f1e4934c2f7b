"""How many CPU cores there are for us."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
