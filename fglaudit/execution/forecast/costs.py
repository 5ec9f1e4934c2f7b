"""What attacks and audits cost: seconds to start, and seconds per MB that they read. Measured, not derived.

``python -m bench costs`` measures small suites of every family in two sizes and prints the table; rates that were far
off in a cell of the suites fedgat, fedgt or gfl-appnp are those of that cell, which reads 10 to 100 times as much. An
attack's seconds include its self-test and its scoring, over all members of an observer. How long an attack searches
depends on what it finds: the figures foretell an order of magnitude, see docs/use.md for how far off they were.
"""

from __future__ import annotations

import time

import torch

from fglaudit.rng import derive

AUDITS = "audits of a guarantee"
"""Read what clients send until the first round is over."""
REFERENCE = 0.375
"""Seconds of :func:`machine_seconds` where the costs were measured."""
COSTS: dict[str, tuple[float, float]] = {
    "absent-words": (0.0094, 0.012),
    AUDITS: (4.3, 1.1),
    "code-edges": (0.024, 0.061),
    "differenced-sums": (0.054, 0.011),
    "differenced-updates": (0.12, 0.006),
    "embedding-inversion": (0.12, 0.77),
    "embedding-neighbors": (0.42, 0.052),
    "global-node-centroids": (0.35, 0.013),
    "global-node-denoising": (0.083, 0),
    "global-node-labels": (0, 0.0077),
    "global-node-linkage": (0.019, 0),
    "global-node-membership": (0.11, 0.0044),
    "gradient-labels": (0.038, 0.051),
    "gram-peeling": (0.38, 0.025),
    "integer-propagation": (0.075, 0.048),
    "jacobian-reading": (0.21, 0),
    "joint-diagonalisation": (0.4, 0.025),
    "label-reading": (0.4, 0.03),
    "label-sums": (0.02, 10),
    "latent-decoder": (0.073, 0),
    "latent-labels": (0.047, 0.13),
    "latent-similarity": (0.066, 0.068),
    "lone-parts": (0.08, 0.05),
    "mask-flip": (1.6, 5.6),
    "maximum-a-posteriori": (0.096, 0.073),
    "one-node-clusters": (0.03, 0.0069),
    "power-moments": (0.28, 0.036),
    "raw-features": (0.032, 0.085),
    "report-labels": (0.011, 0.46),
    "report-rows": (0.0044, 2.8),
    "representation-inversion": (0.28, 0.8),
    "row-presence": (0.012, 0.0092),
    "row-space": (0.089, 0.04),
    "second-moments": (0.42, 0.028),
    "server-partial-sums": (0.095, 0.041),
    "sparse-recovery": (0.2, 0.0031),
    "subset-sum": (0.17, 0.048),
    "update-inversion": (0.11, 0.075),
    "update-l1-norms": (0.13, 6.2),
    "update-labels": (4.1, 0),
    "update-linkage": (0.023, 0.0067),
    "update-shares": (0.029, 0.0084),
    "update-subset-sum": (0.14, 0.066),
    "vector-columns": (0.12, 0.094),
    "weight-difference": (0.11, 0.0056),
    "weight-replay": (1.7, 9.1),
}
"""By attack: seconds to start it, and per 10^6 bytes that it reads."""


def machine_seconds() -> float:
    """Return how long this machine takes, on one core, for a little of what attacks do: products and sorting."""
    rng = derive(0, "machine")
    matrix, numbers = torch.rand((384, 384), generator=rng), torch.rand(400_000, generator=rng)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for _ in range(10):
            matrix @ matrix
            numbers.sort()
        best = min(best, time.process_time() - start)
    return best
