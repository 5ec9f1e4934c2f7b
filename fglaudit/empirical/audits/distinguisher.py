"""A test that is learned: logistic regression and gradient-boosted trees on everything that one replay shows.

Features are values, their bits, differences between releases and sums over releases; the lowest bits of floating-point
numbers are looked at by themselves. Half of the replays train, the other half is counted (:mod:`curve_test`), so a
model that learned nothing, or too much, costs power and no false alarm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglaudit.empirical.estimates.curve_test import Curve, curve_test, largest_epsilon
from fglaudit.empirical.replays.local_stages import RowStage
from fglaudit.empirical.replays.message_stage import MessageStage
from fglaudit.empirical.replays.stages import Pair, Stage
from fglaudit.empirical.replays.staging import Staged
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.tradeoff import TradeOff
from fglaudit.rng import derive

REPLAYS = 1600
"""Per world: half of them train."""
WIDTH = 24
"""Most numbers of a release that are looked at."""
RELEASES = 4
"""Releases whose single values are looked at; of the others the sum."""
BITS = 6
FINEST = 2**-9
"""Value of the lowest bit of fixed-point numbers, in scales of the noise: what single precision resolves without
showing how it rounds."""
LOWEST = 4
"""Lowest bits of a floating-point number, looked at by themselves."""


def lowest_bits(seen: Tensor) -> Tensor:
    """Return the lowest bits [copies, n] of single-precision numbers.

    How numbers round depends on their size, so these bits are compared between opposite worlds alone, where sizes are
    alike whatever the noise is.
    """
    bits = seen[:, :RELEASES, :WIDTH].float().contiguous().view(torch.int32)
    return torch.stack([(bits >> bit) & 1 for bit in range(LOWEST)], 1).flatten(1).double()


def features(seen: Tensor, scale: float) -> Tensor:
    """Return features [copies, n] of what replays show [copies, T, C], with noise of ``scale``."""
    few = seen[:, :RELEASES, :WIDTH]
    fine = (few / (scale * FINEST)).round().clamp(-(2.0**62), 2.0**62).long()
    bits = torch.stack([(fine >> bit) & 1 for bit in range(BITS)], 1).flatten(1).double()
    parts = [few.flatten(1), seen[..., :WIDTH].sum(1), bits]
    if few.shape[1] > 1:
        parts.append((few[:, 1:] - few[:, :-1]).flatten(1))
    return torch.cat(parts, 1)


def _opposite(stage: Stage, pair: Pair) -> tuple[Any, Curve] | None:
    """Return the input opposite to the present one and the curve between the two; None where an offset, or a clip of
    its own, makes their sizes differ, or no curve is known."""
    if isinstance(stage, RowStage | MessageStage) and stage.noise.distribution in ("gaussian", "laplace"):
        if stage.clip is not None and stage.clip.around != "zero":
            return None
        if bool((pair.absent == -pair.present).all()):
            return pair.absent, Curve.of(stage.stated)
        if stage.stated.mu is not None:  # two steps away
            return -pair.present, Curve.of(TradeOff.gaussian(2 * stage.stated.mu))
    return None


def learned(there: Tensor, gone: Tensor, seed: int, *, linear: bool) -> list[tuple[str, Tensor, Tensor]]:
    """Return by model the scores of the half that was not learned from, of both worlds."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # a second, which few processes need
    from sklearn.linear_model import LogisticRegression

    half = len(there) // 2
    x = torch.cat([there[:half], gone[:half]]).numpy()
    y = np.repeat([1, 0], [half, len(gone[:half])])
    mean, spread = x.mean(0), x.std(0) + 1e-12
    models: list[tuple[str, Any]] = [
        *([("logistic regression", LogisticRegression(C=0.1, max_iter=200))] if linear else []),
        ("boosted trees", HistGradientBoostingClassifier(max_iter=40, random_state=seed % 2**31)),
    ]
    found = []
    for name, model in models:
        model.fit((x - mean) / spread, y)
        scored = [
            torch.from_numpy(model.predict_proba((world[half:].numpy() - mean) / spread)[:, 1].copy())
            for world in (there, gone)
        ]
        found.append((name, scored[0], scored[1]))
    return found


def distinguisher_audit(staged: Staged, accounted: Accounted, *, seed: int) -> Audit:
    """Return the audit of all stages, each on its first and its last pair."""
    listed: list[tuple[Stage, Pair]] = []
    for number, stages in staged.stages.items():
        for stage in stages:
            pairs = stage.pairs(derive(seed, "audits", "pairs", number))
            listed += [(stage, pair) for pair in ([pairs[0]] if len(pairs) == 1 else [pairs[0], pairs[-1]])]
    if not listed:
        return Audit(AuditName.DISTINGUISHER, Outcome.UNTESTED, "nothing to replay")
    tests = 2 * len(listed) + sum(opposite is not None for opposite in map(_opposite, *zip(*listed, strict=True)))
    curves: dict[int, Curve] = {}
    worst, words, reachable = 1.0, "nothing was to be seen", np.inf
    for count, (stage, pair) in enumerate(listed):
        curve = curves.setdefault(id(stage), Curve.of(stage.stated))
        copies = max(200, min(REPLAYS, 2**24 // max(1, stage.cost)))
        scale = stage.scale if stage.noise.distribution in ("gaussian", "laplace") else 1.0
        rng = derive(seed, "audits", "distinguisher", count)
        seen = [stage.play(given, copies, rng) for given in (pair.present, pair.absent)]
        tried = [(curve, "", [features(each, scale) for each in seen])]
        if (opposite := _opposite(stage, pair)) is not None:
            against, curve_of_both = opposite
            other = stage.play(against, copies, rng)
            tried.append((curve_of_both, "lowest bits, ", [lowest_bits(each) for each in (seen[0], other)]))
        for stated, what, worlds in tried:
            there, gone = (world.nan_to_num(0.0, 1e30, -1e30) for world in worlds)
            for model, in_, out in learned(there, gone, seed, linear=not what):
                test = curve_test(in_, out, stated, rng=derive(seed, "audits", "distinguisher split", count))
                if test.p_value < worst:
                    worst = test.p_value
                    words = (
                        f"{what}{model} on {stage.name}, {pair.name}: {test.hits:.3f} hits at {test.alarms:.3f} false"
                        f" alarms, where {stated.stated.hits(test.alarms):.3f} are allowed"
                    )
        reachable = min(reachable, largest_epsilon(stage.stated, copies // 2, REFUTED_AT / tests, accounted.delta))
    p = min(1.0, tests * worst)
    outcome = Outcome.REFUTED if p <= REFUTED_AT else Outcome.PASSED
    return Audit(AuditName.DISTINGUISHER, outcome, words, p, None, float(reachable))
