"""Does what is seen in replays fit the trade-off curve that was composed from facts? Over all releases, on worst cases.

Every stage of every mechanism is replayed on several canaries, with the score of its stated noise; all mechanisms
together against the curve of the whole event too. The smallest p-value counts, times the number of tests. The same
scores give the lower bound on epsilon that was measured, and the points of the curve that reports draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.empirical.audits.too_weak import why_too_weak
from fglaudit.empirical.estimates.bound import Bound
from fglaudit.empirical.estimates.clopper_pearson import clopper_pearson
from fglaudit.empirical.estimates.curve_test import Curve, curve_test, largest_epsilon, power
from fglaudit.empirical.estimates.gdp import gdp
from fglaudit.empirical.estimates.measured_curve import measured_curve
from fglaudit.empirical.replays.scores import score_of, scores, stage_sampled
from fglaudit.empirical.replays.stages import Pair, Stage
from fglaudit.empirical.replays.staging import Staged
from fglaudit.errors import FglauditError
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, MeasuredCurve, Outcome
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.tradeoff import TradeOff, narrowed
from fglaudit.rng import derive

REPLAYS = (4000, 6000, 10000, 20000, 50000, 100000)
"""Replays per world: the first of these with which noise too small by 1.5 is seen with probability 0.95; the last ones
are for epsilons below 1."""
TOO_SMALL = 1.5
ENOUGH = 0.9
DRAWS = 2**28
"""Numbers that may be drawn for one stage: a few seconds."""


@dataclass(frozen=True)
class Seen:
    """What one canary showed.

    Attributes:
        p: p-value, not corrected.
        words: which canary, and what was measured.
        power: against noise too small by 1.5.
        replays: per world.
        scores: of both worlds, the record there and gone.
        stated: the curve that they were tested against.
        weaker: the curve that this canary would show with noise too small by 1.5; None where it is not known.
        affordable: replays that could have been made of it.
        gaussian: whether all that was stated of them is Gaussian noise; a sum over a random sample is not.
    """

    p: float
    words: str
    power: float
    replays: int
    scores: tuple[Tensor, Tensor]
    stated: TradeOff
    weaker: TradeOff | None
    affordable: int
    gaussian: bool


def trade_off_audit(staged: Staged, accounted: Accounted, *, seed: int) -> Audit:
    """Return the audit of the composed trade-off curve."""
    if not staged.stages:
        return Audit(AuditName.TRADE_OFF, Outcome.UNTESTED, "; ".join(staged.left_out) or "nothing to replay")
    listed = [
        (number, stage, pair)
        for number, stages in staged.stages.items()
        for stage in stages
        for pair in stage.pairs(derive(seed, "audits", "pairs", number))
    ]
    together = len(staged.stages) > 1 and not staged.left_out
    tests = len(listed) + together
    level = REFUTED_AT / tests
    seen: dict[int, list[Seen]] = {}
    curves: dict[tuple[int, int], Curve] = {}
    for count, (number, stage, pair) in enumerate(listed):
        curve = curves.setdefault((number, id(stage)), Curve.of(stage.stated))
        seen.setdefault(number, []).append(replayed(stage, pair, curve, level, (seed, count)))
    all_ = [one for found in seen.values() for one in found]
    if together:
        all_.append(_together(seen, accounted, seed))
    worst = min(all_, key=lambda one: one.p)
    p = min(1.0, tests * worst.p)
    least = min(max(one.power for one in found) for found in seen.values())
    sampled = [stage for stages in staged.stages.values() for stage in stages if stage_sampled(stage)]
    outcome = Outcome.REFUTED if p <= REFUTED_AT else Outcome.PASSED if least >= ENOUGH else Outcome.UNTESTED
    if staged.left_out and outcome is Outcome.PASSED:
        outcome = Outcome.UNTESTED
    fewest = min(one.replays for one in all_)
    reachable = min(
        largest_epsilon(stage.stated, fewest, level, accounted.delta) for _, stage, _ in _first_of_each(listed)
    )
    detail = (
        f"{tests} canaries, up to {max(one.replays for one in all_)} replays per world of all releases, scored by the"
        f" stated noise; most telling: {worst.words}"
    )
    if not sampled and not staged.left_out and outcome is Outcome.UNTESTED:
        detail = f"{_too_weak(seen, level, accounted)}; {detail}"
    if sampled and outcome is Outcome.UNTESTED:
        detail += "; samples hide how small the noise is: the power is that of the audit of the noise itself"
    if staged.left_out:
        detail += "; not replayed: " + "; ".join(staged.left_out)
    return Audit(AuditName.TRADE_OFF, outcome, detail, p, least, reachable, _curve_of(all_, accounted.delta, seed))


def _too_weak(seen: dict[int, list[Seen]], level: float, accounted: Accounted) -> str:
    """Return what is too weak of the mechanism that canaries test least, and what to set."""
    strongest = [max(found, key=lambda one: one.power) for found in seen.values()]
    least = min(strongest, key=lambda one: one.power)
    replays, whole = (*_rungs(least.affordable),), accounted.mu
    return why_too_weak(least.stated, least.weaker, replays, level, accounted.delta, ENOUGH, whole)


def _rungs(affordable: int) -> list[int]:
    """Return how many replays may be made, fewest first."""
    return sorted({min(copies, affordable) for copies in REPLAYS})


def _curve_of(seen: list[Seen], delta: float, seed: int) -> MeasuredCurve | None:
    """Return what the canary with the largest lower bound on epsilon showed: of all canaries together the bound is
    wrong with probability ``REFUTED_AT``."""
    found: list[tuple[Bound, Seen]] = []
    for count, one in enumerate(seen):
        if not all(bool(torch.isfinite(scores).all()) for scores in one.scores):
            continue
        # Scores of Gaussian noise bound mu, which says more; it is an epsilon only if all that is stated is Gaussian.
        estimate = gdp if one.gaussian and delta > 0 else clopper_pearson
        rng = derive(seed, "audits", "bound", count)
        bound = estimate(*one.scores, delta=delta, confidence=1 - REFUTED_AT, rng=rng, tried=len(seen))
        found.append((bound, one))
    if not found:
        return None
    bound, strongest = max(found, key=lambda pair: (pair[0].epsilon, pair[1].power))
    return measured_curve(*strongest.scores, strongest.stated, bound, strongest.words, len(seen))


def _first_of_each(listed: list[tuple[int, Stage, Pair]]) -> list[tuple[int, Stage, Pair]]:
    return list({number: (number, stage, pair) for number, stage, pair in reversed(listed)}.values())


def replayed(stage: Stage, pair: Pair, curve: Curve, level: float, seed: tuple[int, int]) -> Seen:
    """Return what one canary shows against ``curve``, with enough replays to see noise too small by 1.5 at ``level``.

    Args:
        seed: the run's, and the number of the canary.
    """
    score = score_of(stage, pair, seed=derive_seed(*seed))
    weaker = _weaker(stage, score.distance if score.distribution != "sum" else None)
    affordable = max(100, DRAWS // (2 * stage.cost))
    copies, strength = affordable, 0.0
    for copies in _rungs(affordable):
        strength = power(curve, weaker, copies, level) if weaker is not None else 0.0
        if strength >= 0.95:
            break
    if strength < ENOUGH:  # this canary does not reach far enough: more replays would not help either
        copies = min(REPLAYS[0], affordable)
    rng = derive(seed[0], "audits", "replays", seed[1])
    gaussian = stage.stated.mu is not None and not stage_sampled(stage)
    there = scores(stage, pair.present, score, copies, rng)
    gone = scores(stage, pair.absent, score, copies, rng)
    if not (bool(torch.isfinite(there).all()) and bool(torch.isfinite(gone).all())):
        found = there.isfinite().logical_not().sum().item(), gone.isfinite().logical_not().sum().item()
        words = f"{stage.name}, {pair.name}: values that are not finite {found}"
        return Seen(1.0, words, 0.0, copies, (there, gone), stage.stated, weaker, affordable, gaussian)
    test = curve_test(there, gone, curve, rng=derive(seed[0], "audits", "split", seed[1]))
    allowed = curve.stated.hits(test.alarms)
    words = (
        f"{stage.name}, {pair.name}: {test.hits:.4f} hits at {test.alarms:.4f} false alarms, where the stated curve"
        f" allows {allowed:.4f} (p {test.p_value:.2g})"
    )
    return Seen(test.p_value, words, strength, copies, (there, gone), stage.stated, weaker, affordable, gaussian)


def derive_seed(seed: int, count: int) -> int:
    """Return a seed of its own for one canary."""
    return int(torch.randint(2**62, (1,), generator=derive(seed, "audits", "canary", count)).item())


def _weaker(stage: Stage, distance: float | None) -> TradeOff | None:
    """Return the curve that the canary would show with noise too small by 1.5; None where it is not known."""
    stated = stage.stated
    if stage_sampled(stage):
        return None
    if stated.mu is not None:
        assert distance is not None, "Gaussian noise has a score of its own"
        return TradeOff.gaussian(TOO_SMALL * min(stated.mu, distance / stage.scale))
    assert stated.event is not None and stated.relation is not None
    reach = 1.0
    if distance is not None:  # Laplace noise
        whole = stage.scale * stated.pure
        reach = min(1.0, distance / whole) if whole > 0 else 1.0
    try:
        return TradeOff.of(narrowed(stated.event, TOO_SMALL * reach), stated.relation)
    except FglauditError:
        return None


def _together(seen: dict[int, list[Seen]], accounted: Accounted, seed: int) -> Seen:
    """Return what the strongest canaries of all mechanisms show together, against the curve of the whole."""
    chosen = [max(found, key=lambda one: (one.power, one.replays)) for found in seen.values()]
    size = min(one.replays for one in chosen)
    there = torch.stack([one.scores[0][:size] for one in chosen]).sum(0)
    gone = torch.stack([one.scores[1][:size] for one in chosen]).sum(0)
    stated = TradeOff.of(accounted.event, accounted.relation, accounted.delta)
    test = curve_test(there, gone, stated, rng=derive(seed, "audits", "together"))
    words = (
        f"all mechanisms together: {test.hits:.4f} hits at {test.alarms:.4f} false alarms, where the stated curve"
        f" allows {stated.hits(test.alarms):.4f} (p {test.p_value:.2g})"
    )
    return Seen(test.p_value, words, 0.0, size, (there, gone), stated, None, size, stated.mu is not None)
