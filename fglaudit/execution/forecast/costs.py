"""What attacks and audits cost: seconds to start, and seconds per MB that they read. Measured, not derived.

``python -m bench costs`` measures small suites of every family in two sizes and prints the table. An
attack's seconds include its self-test and its scoring, over all members of an observer. How long an attack searches
depends on what it finds: the figures foretell an order of magnitude, see docs/use.md for how far off they were.
"""

from __future__ import annotations

import time

import torch

AUDITS = "audits of a guarantee"
"""Read what clients send until the first round is over."""
REFERENCE = 0.3
"""Seconds of :func:`machine_seconds` where the costs were measured."""
COSTS: dict[str, tuple[float, float]] = {}
"""By attack: seconds to start it, and per 10^6 bytes that it reads."""


def machine_seconds() -> float:
    """Return how long this machine takes, on one core, for a little of what attacks do: products and sorting."""
    rng = torch.Generator().manual_seed(0)
    matrix, numbers = torch.rand((384, 384), generator=rng), torch.rand(400_000, generator=rng)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for _ in range(10):
            matrix @ matrix
            numbers.sort()
        best = min(best, time.process_time() - start)
    return best
