"""Do replays that stand side by side in one call share a draw? Then they are not independent, and refute nothing.

A coin for every sender, a factor or an offset for every call hides no less than none at all, but all replays of one
world have it in common, and those of the other world have another one. Calls of equal content show it: over several of
them what is seen of a replay is distributed alike (Kruskal and Wallis 1952), unless its call matters. What refutes is
then tried again with replays that are runs of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from scipy import stats
from torch import Tensor

from fglaudit.empirical.replays.scores import CHUNK
from fglaudit.empirical.replays.stages import Stage
from fglaudit.empirical.replays.staging import Staged
from fglaudit.facts import ROWS, Additive
from fglaudit.guarantees import Audit, Outcome
from fglaudit.rng import derive

CALLS, COPIES = 48, 32
"""Calls that are compared, and replays in each."""
OWN = 0.5
"""Share of the stated noise that a replay must have to itself in some call."""
LEVEL = 1e-3
"""Probability that independent replays are tried again, which costs time alone."""


def without_shared_draws(attempt: Callable[[Staged], Audit | None], staged: Staged, seed: int) -> Audit | None:
    """Return the audit that ``attempt`` makes of replays; what refutes must do so of independent ones."""
    found = attempt(staged)
    if found is None or found.outcome is not Outcome.REFUTED or not shares_draws(staged, seed):
        return found
    again = attempt(dataclasses.replace(staged, stages={at: _alone(stages) for at, stages in staged.stages.items()}))
    if again is None or again.outcome is Outcome.REFUTED:
        return again
    why = (
        "replays of one call share draws beside the noise that is stated, and in runs of their own they refute nothing"
    )
    return dataclasses.replace(again, outcome=Outcome.UNTESTED, detail=f"{why}: {again.detail}")


def shares_draws(staged: Staged, seed: int) -> bool:
    """Whether what a replay shows depends on the call that it is in."""
    listed = [stage for stages in staged.stages.values() for stage in stages]
    return any(_differ(stage, derive(seed, "audits", "calls", at)) for at, stage in enumerate(listed))


def _alone(stages: list[Stage]) -> list[Stage]:
    return [dataclasses.replace(stage, alone=True) for stage in stages]


def _differ(stage: Stage, rng: torch.Generator) -> bool:
    given = stage.pairs(rng)[0].present
    copies = max(2, min(COPIES, CHUNK // stage.numbers))
    center = stage.play(given, copies, rng).mean(0)
    calls = [stage.play(given, copies, rng) - center for _ in range(CALLS)]
    stated = stage.factor * Additive(ROWS, stage.noise.distribution, stage.noise.scale).std
    if max(float(seen.flatten(1).std(0).median()) for seen in calls) < OWN * stated:
        return False  # replays share the noise itself, which hides nothing in one that is seen beside another
    told = [_told(seen) for seen in calls]
    return any(_p(numbers) < LEVEL / len(told[0]) for numbers in torch.stack(told, 1))


def _told(seen: Tensor) -> Tensor:
    """Return numbers [3, copies] that are looked at of replays [copies, releases, C]."""
    flat = seen.flatten(1)
    return torch.stack([flat[:, 0], flat.mean(1), torch.linalg.vector_norm(flat, dim=1)])


def _p(numbers: Tensor) -> float:
    """Return the p-value of ``numbers`` [calls, copies] being distributed alike in every call."""
    if not bool(numbers.isfinite().all()) or bool((numbers == numbers[0, 0]).all()):
        return 1.0
    return float(stats.kruskal(*numbers.numpy()).pvalue)
