"""Planted rows: the auditor draws a record from m public candidates, all else fixed, and guesses it from a replay.

If every candidate is a neighbour of one and the same data set (a record of zeros, say) and the trade-off curve is f,
the guess that is best is right with probability at most ``1 - f(1/m)``: the sets of outcomes in which the candidates
are guessed are disjoint, so their probabilities there come to 1 at most, and ``1 - f`` is concave. Where any two
candidates are neighbours and epsilon is pure it is at most ``e^eps / (e^eps + m - 1)``. Replays are independent, so
the tail of a binomial distribution refutes. Natural rows never do: their prior is not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from scipy.stats import binom
from torch import Tensor

from fglaudit.empirical.replays.local_stages import RowStage, UpdateStage
from fglaudit.empirical.replays.message_stage import MeanStage, MessageStage
from fglaudit.empirical.replays.stages import HUGE, Stage
from fglaudit.empirical.replays.staging import Staged
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.privacy.accounting import Relation
from fglaudit.privacy.tradeoff import TradeOff
from fglaudit.rng import derive

CANDIDATES = 6
REPLAYS = 500
"""Of each candidate."""
PILOTS = 100


def most_right(stated: TradeOff, candidates: int, relation: Relation, *, neighbors: bool) -> float:
    """Return the largest probability of a right guess.

    Args:
        neighbors: whether any two candidates are neighbouring records, rather than each one's neighbour zero.
    """
    bound = stated.hits(1 / candidates)
    if neighbors and relation is Relation.REPLACE and math.isfinite(stated.pure):
        bound = min(bound, 1 / (1 + (candidates - 1) * math.exp(-min(stated.pure, 700.0))))
    return min(1.0, bound)


def candidates_of(stage: Stage, rng: torch.Generator) -> list[Tensor]:
    """Return public candidates: rows in different directions, one as good as another."""
    if isinstance(stage, RowStage):
        width, size = stage.width, HUGE
        low = torch.zeros(width, dtype=torch.float64)
        found = [low + size * (torch.rand(width, generator=rng, dtype=torch.float64) < 0.5) for _ in range(CANDIDATES)]
        return [2 * row - size for row in found]
    if isinstance(stage, MessageStage):
        width = stage.width
        size = stage.clip.bound * HUGE if stage.clip is not None else stage.noise.sensitivity / 2
    elif isinstance(stage, MeanStage | UpdateStage):
        width, size = stage.WIDTH, stage.clip.bound * HUGE
    else:
        return []
    axes = torch.eye(width, dtype=torch.float64)
    return [size * sign * axis for axis in axes[: CANDIDATES // 2] for sign in (1, -1)]


def planted_rows_audit(staged: Staged, *, seed: int) -> Audit:
    """Return the audit of all stages whose inputs the auditor may choose."""
    played = [stage for stages in staged.stages.values() for stage in stages]
    listed = [(stage, candidates_of(stage, derive(seed, "audits", "candidates"))) for stage in played]
    listed = [(stage, rows) for stage, rows in listed if len(rows) > 1]
    if not listed:
        return Audit(AuditName.PLANTED_ROWS, Outcome.UNTESTED, "no row can be planted")
    worst, words = 1.0, ""
    for count, (stage, rows) in enumerate(listed):
        copies = max(50, min(REPLAYS, 2**23 // max(1, stage.cost)))
        right, tried = _right(stage, rows, copies, derive(seed, "audits", "planted", count))
        bound = most_right(stage.stated, len(rows), stage.relation, neighbors=isinstance(stage, RowStage))
        p = float(binom.sf(right - 1, tried, bound))
        if p <= worst:
            worst = p
            words = (
                f"{stage.name}: {right / tried:.3f} of {tried} rows drawn from {len(rows)} were guessed, where"
                f" {bound:.3f} are allowed"
            )
    p = min(1.0, len(listed) * worst)
    return Audit(AuditName.PLANTED_ROWS, Outcome.REFUTED if p <= REFUTED_AT else Outcome.PASSED, words, p)


def _right(stage: Stage, rows: Sequence[Tensor], copies: int, rng: torch.Generator) -> tuple[int, int]:
    """Return how many of how many guesses are right: the candidate whose replays were nearest on average."""
    centers = torch.stack([stage.play(row, PILOTS, rng).sum(1).median(0).values for row in rows])
    if stage.noise.distribution not in ("gaussian", "laplace"):
        centers = torch.stack([stage.play(row, 4 * PILOTS, rng).sum(1).mean(0) for row in rows])
    right = 0
    order = 1 if stage.noise.distribution == "laplace" else 2
    for number, row in enumerate(rows):
        seen = stage.play(row, copies, rng).sum(1)
        distance = torch.linalg.vector_norm(seen[:, None] - centers[None], ord=order, dim=2)
        right += int((distance.argmin(1) == number).sum().item())
    return right, copies * len(rows)
