"""How many CPU cores there are for us."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(jobs: int) -> int:
    """Return the CPU threads of each of ``jobs`` workers: an even share of the cores, and no more than a user allows by
    ``OMP_NUM_THREADS``. Threads beyond the free cores wait for each other, many times longer than they compute."""
    share = max(1, available_cores() // jobs)
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(share, int(asked)) if asked.isdigit() and int(asked) > 0 else share
