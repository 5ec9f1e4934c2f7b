"""Is every loss's gradient clipped, and drawn, by itself? One of another length must not change what is made of the
others.

A bound made of all gradients of a step (their longest, mean, median or another quantile) keeps each within the clip,
and moves all of them when one loss changes: the sum then moves farther than twice the clip. Sought are steps of many
losses in which few grow from one length to another one, at several ranks, with equal draws.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.empirical.fields.steps import after_noise
from fglaudit.empirical.replays.local_stages import UpdateStage
from fglaudit.empirical.replays.staging import Staged
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.rng import derive

RANKS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Shares of the losses that are short; 1: all but those that change."""
_LOSSES, _CHANGED = 500, 4
_SHORT, _LONG, _LONGER = 0.5, 5.0, 1000.0
"""Lengths in clips."""


def own_clip_audit(staged: Staged, *, seed: int) -> Audit | None:
    """Return whether gradients of other losses change what becomes of one; None where no gradients are replayed."""
    stages = [each for group in staged.stages.values() for each in group if isinstance(each, UpdateStage)]
    found = [_audit(staged, stage, seed) for stage in stages]
    return next((audit for audit in found if audit is not None), None)


def _audit(staged: Staged, stage: UpdateStage, seed: int) -> Audit | None:
    scaled = after_noise(staged.facts, stage.noise)
    if scaled is None:
        return None
    bound = 2 * stage.clip.bound * _CHANGED * scaled * (1 + 1e-3)
    farthest = 0.0
    for number, rank in enumerate(RANKS):
        short = round(rank * (_LOSSES - _CHANGED))
        lengths = torch.full((_LOSSES,), _LONG)
        lengths[:short] = _SHORT
        ends = [_SHORT, _LONG, _LONGER] if short == _LOSSES - _CHANGED else [_SHORT, _LONGER]
        sums = [_sum(stage, lengths, end, turned=False, seed=seed + number) for end in ends]
        turned = [_sum(stage, lengths, end, turned=True, seed=seed + number) for end in ends]
        if any(float((a - b).norm()) > bound for a, b in zip(sums, turned, strict=True)):
            return None  # other directions move more than that: draws are others, and lengths cannot be told
        farthest = max(farthest, *(float((one - sums[0]).norm()) for one in sums[1:]))
    words = (
        f"{_CHANGED} of {_LOSSES} gradients that become longer move their sum by {farthest:.4g}, and clipped one by"
        f" one they move it by {bound:.4g} at most"
    )
    if farthest <= bound:
        return Audit(AuditName.CLIP, Outcome.PASSED, words)
    fix = (
        "its clip, or whether it is drawn, depends on the gradients of others; clip each by the bound that is stated,"
        " and draw each at the stated rate"
    )
    return Audit(AuditName.CLIP, Outcome.REFUTED, f"{words}: what is made of a loss, {fix}")


def _sum(stage: UpdateStage, lengths: Tensor, end: float, *, turned: bool, seed: int) -> Tensor:
    """Return what becomes of gradients of ``lengths``, in clips, the last few of them ``end`` long and, if ``turned``,
    in the opposite direction."""
    lengths = lengths.clone()
    lengths[-_CHANGED:] = end * (-1 if turned else 1)
    gradients = torch.zeros(_LOSSES, 1, stage.WIDTH)
    gradients[:, 0, 0] = stage.clip.bound * lengths
    return stage.fresh().local_update(gradients, derive(seed, "audits", "clips")).double()
