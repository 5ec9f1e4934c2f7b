"""Scores of replays: how much what was seen speaks for the record, by the noise that is stated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.empirical.replays.stages import Pair, Stage
from fglaudit.rng import derive

CHUNK = 2**21
"""Numbers that are in memory at once, about."""
PILOTS = 200
TWINS = 16


@dataclass(frozen=True)
class Score:
    """The log-likelihood ratio of what is seen, up to a constant; for noise of another kind a weighted sum.

    Attributes:
        distribution: of the noise.
        scale: of the noise.
        shift: what the record moves [T, C].
        center: what is seen without the record and the noise [T, C].
    """

    distribution: str
    scale: float
    shift: Tensor
    center: Tensor

    def of(self, seen: Tensor) -> Tensor:
        """Return the score of every replay [copies] of ``seen`` [copies, T, C]."""
        if self.distribution == "laplace":
            from_absent = seen - self.center
            return ((from_absent.abs() - (from_absent - self.shift).abs()) / self.scale).flatten(1).sum(1)
        return ((seen - self.center) * (self.shift / self.scale**2)).flatten(1).sum(1)

    @property
    def distance(self) -> float:
        """Norm of what the record moves in all releases together: L2, for Laplace noise L1."""
        return float(torch.linalg.vector_norm(self.shift, ord=1 if self.distribution == "laplace" else 2).item())


def score_of(stage: Stage, pair: Pair, *, seed: int) -> Score:
    """Return the score for ``pair``: from replays with equal draws, which differ by what the record moves alone, and
    from pilots, none of which is counted."""
    rng = derive(seed, "audits", "twins")
    state = rng.get_state()
    there = stage.play(pair.present, TWINS, rng)
    rng.set_state(state)
    gone = stage.play(pair.absent, TWINS, rng)
    pilots = derive(seed, "audits", "pilots")
    if stage.noise.distribution in ("gaussian", "laplace") and not stage_sampled(stage):
        shift = (there - gone).median(0).values
        center = stage.play(pair.absent, PILOTS, pilots).median(0).values
        return Score(stage.noise.distribution, stage.scale, shift, center)
    count = max(PILOTS, min(2000, CHUNK // max(1, stage.numbers)))
    present, absent = stage.play(pair.present, count, pilots), stage.play(pair.absent, count, pilots)
    variance = (present.var(0) + absent.var(0)) / 2
    moved = present.mean(0) - absent.mean(0)
    # What does not vary at all and differs gives the record away: it weighs most.
    weight = moved / (variance + 1e-6 * moved.square().mean() + 1e-30)
    return Score("sum", 1.0, weight, absent.mean(0))


def farthest(stage: Stage, seed: int) -> float | None:
    """Return how far a canary of ``stage`` moves one release at most, in the norm that the noise hides, with equal
    draws; None where equal draws do not show it, because the noise does not come from them alone."""
    order = {"gaussian": 2.0, "laplace": 1.0}.get(stage.noise.distribution)
    if order is None or stage_sampled(stage):
        return None
    clip = getattr(stage, "clip", None)
    if clip is not None and clip.norm == "elementwise":
        order = math.inf  # every number is accounted by itself
    most: float | None = None
    for pair in stage.pairs(derive(seed, "audits", "pairs")):
        rng = derive(seed, "audits", "reach")
        state = rng.get_state()
        there = stage.play(pair.present, TWINS, rng)
        rng.set_state(state)
        moved = there - stage.play(pair.absent, TWINS, rng)
        shift = moved.median(0).values
        if float((moved - shift).abs().max()) > 1e-3 * float(shift.abs().max()):
            continue  # something else than the record differs too
        most = max(most or 0.0, float(torch.linalg.vector_norm(shift, ord=order, dim=1).max()))
    return most


def stage_sampled(stage: Stage) -> bool:
    """Whether what enters is a random sample, so that equal draws show no fixed difference."""
    return bool(getattr(stage, "sampled", False))


def scores(stage: Stage, given: object, score: Score, copies: int, rng: torch.Generator) -> Tensor:
    """Return the scores of ``copies`` replays of one input."""
    step = max(1, min(copies, CHUNK // max(1, stage.numbers)))
    parts = [score.of(stage.play(given, min(step, copies - done), rng)) for done in range(0, copies, step)]
    return torch.cat(parts)
