"""Is a mechanism of a user's own as private as its author says? Independent replays on chosen neighbours.

Nothing is known of the mechanism but what it answers. The record is guessed by how near answers are to either input,
and by logistic regression and boosted trees, which see single values, bits, sums over calls, lengths and distances.
Every guess must pay what the promise asks (:mod:`curve_test`): (epsilon, delta), or the whole curve of a Gaussian
mechanism where its author says that it is one.
That no guess wins proves nothing, so the answer is "refuted" or "not refuted", never "private".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dp_accounting
import numpy as np
import torch
from torch import Tensor

from fglaudit.empirical.audits.trade_off import ENOUGH, TOO_SMALL
from fglaudit.empirical.estimates.clopper_pearson import clopper_pearson
from fglaudit.empirical.estimates.curve_test import (
    CHOOSING,
    MIN_REPLAYS,
    Curve,
    Joined,
    curve_test,
    largest_epsilon,
    largest_refuted,
    power,
)
from fglaudit.empirical.estimates.gdp import gdp
from fglaudit.empirical.mechanisms.calls import AuditedMechanism
from fglaudit.empirical.mechanisms.exposed_row import exposed_row
from fglaudit.empirical.mechanisms.guesses import TESTS, guesses
from fglaudit.empirical.mechanisms.inputs import Inputs, Neighbors
from fglaudit.errors import FglauditError, duration
from fglaudit.guarantees import REFUTED_AT, Outcome
from fglaudit.privacy.accounting import check_budget
from fglaudit.privacy.tradeoff import TradeOff
from fglaudit.rng import derive

REPLAYS = (10_000, 30_000, 100_000)
"""Replays per world and pair: the first of these that suffice for the promise."""
TRIAL = 500
"""Replays by which the time that all take is estimated; they are no part of any test."""
SELDOM = 0.01


@dataclass(frozen=True)
class Promise:
    """What an author says of a mechanism.

    Attributes:
        epsilon, delta: of all calls of one replay together.
        gaussian: whether it is a Gaussian mechanism, whose whole trade-off curve follows from the two.

    Raises:
        FglauditError: unless 0 < epsilon and 0 <= delta < 1, 0 < delta for a Gaussian mechanism.
    """

    epsilon: float
    delta: float = 0.0
    gaussian: bool = False

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, pure=not self.gaussian)

    @property
    def curve(self) -> TradeOff:
        """The trade-off curve that every guess must respect."""
        if self.gaussian:
            return TradeOff.gaussian(1 / dp_accounting.get_sigma_gaussian(self.epsilon, self.delta))
        return TradeOff(None, (self.epsilon,), (self.delta,))


@dataclass(frozen=True)
class MechanismAudit:
    """What the replays say of a promise.

    Attributes:
        promise: what was tested.
        outcome: refuted; passed; untested where not even a perfect guess could have refuted it.
        p_value: of the test that speaks most strongly against it, times the number of tests.
        worst: that test, in words.
        measured: lower bound on epsilon at the promise's delta, wrong with probability ``REFUTED_AT``.
        largest: above this epsilon as many replays refute nothing.
        largest_seldom: the same of a record that is read in ``SELDOM`` of the replays, and else not at all.
        power: probability that Gaussian noise too small by 1.5 would have been seen; None for other promises.
        replays: per world and pair.
        pairs: of neighbouring inputs.
        releases: calls of one replay.
        tests: that were made.
    """

    promise: Promise
    outcome: Outcome
    p_value: float
    worst: str
    measured: float
    largest: float
    largest_seldom: float
    power: float | None
    replays: int
    pairs: int
    releases: int
    tests: int

    def lines(self) -> list[str]:
        """Return the verdict in words, the answer first."""
        stated = f"epsilon {self.promise.epsilon:g}" + (f" at delta {self.promise.delta:g}" * (self.promise.delta > 0))
        calls = f"{self.releases} calls together" if self.releases > 1 else "one call"
        ran = (
            f"{self.tests} tests on {self.pairs} pairs of neighbouring inputs, {self.replays} replays of each world,"
            f" {calls}; smallest p-value, corrected: {self.p_value:.2g}"
        )
        if self.outcome is Outcome.REFUTED:
            # Bounds on epsilon are weaker tests than that of the curve, and may stay below what it refutes.
            bound = f" Measured: at least {self.measured:.2f}." if self.measured > self.promise.epsilon else ""
            return [f"REFUTED: {stated}.{bound}", f"seen by {self.worst}", ran]
        if self.outcome is Outcome.UNTESTED:
            weak = (
                f"up to {self.largest:.1f}, even if the record were read every time"
                if self.power is None
                else f"noise too small by {TOO_SMALL:g} would be seen with probability {self.power:.2f}"
            )
            fewer = "" if self.promise.gaussian else ", or say --gaussian of Gaussian noise, which needs far fewer"
            fix = f"ask for more (--replays){fewer}"
            return [f"NOT TESTED: {self.replays} replays cannot refute {stated} ({weak}).", fix, ran]
        seen = (
            f"Gaussian noise too small by {TOO_SMALL:g} would have been seen with probability {self.power:.2f}"
            if self.power is not None
            else f"a record that is read every time would have been seen up to epsilon {self.largest:.1f}, one that is"
            f" read {SELDOM:.0%} of the time up to {self.largest_seldom:.1f}"
        )
        return [
            f"NOT REFUTED: {stated} is its author's claim, and no test contradicts it. Measured epsilon: at least"
            f" {self.measured:.2f}.",
            f"{seen}; what is rarer, or happens on other inputs, is not seen",
            ran,
        ]


def audit_mechanism(
    mechanism: AuditedMechanism,
    promise: Promise,
    inputs: Inputs | None = None,
    *,
    releases: int = 1,
    replays: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> MechanismAudit:
    """Put a promise to the test.

    Args:
        mechanism: the function or class; every call must draw anew. What it remembers between calls it may remember
            within one replay alone: give its class then.
        inputs: what the promise is about; by default a row of 16 real numbers of length 1 at most, replaced by another.
        releases: calls on the same input that the promise covers together.
        replays: per world and pair; by default as many as the promise asks for.
        progress: told how long all takes, about, and of every pair before it is replayed.

    Raises:
        FglauditError: on settings that cannot be, or a mechanism that does not answer with numbers.
    """
    inputs = inputs or Inputs()
    if releases < 1 or (replays is not None and replays < 4 * MIN_REPLAYS):
        raise FglauditError(
            f"there is at least 1 release, and {4 * MIN_REPLAYS} replays; got {releases} and {replays}; use e.g."
            " --releases 1 --replays 4000"
        )
    exposed = exposed_row(mechanism, inputs, derive(seed, "mechanism", "exposed row"))
    pairs = inputs.pairs(derive(seed, "mechanism", "inputs"), exposed)
    curve = Curve.of(promise.curve)
    level = REFUTED_AT / (TESTS * len(pairs))
    copies = replays or _wanted(promise, level)
    tests = list(_tests(mechanism, promise, pairs, curve, copies, releases, seed, progress))
    best = min(((test.p_value, test.words) for test in tests), default=(1.0, "no test: equal answers in both worlds"))
    measured = max((test.epsilon for test in tests), default=0.0)
    p = min(1.0, TESTS * len(pairs) * best[0])
    largest, seen_power = _enough(promise, copies, level)
    suffices = Outcome.PASSED if _suffices(promise, largest, seen_power) else Outcome.UNTESTED
    outcome = Outcome.REFUTED if p <= REFUTED_AT else suffices
    seldom = _largest_seldom(copies, level)
    return MechanismAudit(
        promise, outcome, p, best[1], measured, largest, seldom, seen_power, copies, len(pairs), releases, len(tests)
    )


@dataclass(frozen=True)
class _Test:
    """What one way to guess the record says against a promise.

    Attributes:
        p_value: of the promise.
        words: which guess, and how often it was right.
        epsilon: lower bound.
    """

    p_value: float
    words: str
    epsilon: float


def _tests(
    mechanism: AuditedMechanism,
    promise: Promise,
    pairs: Sequence[Neighbors],
    curve: Curve,
    copies: int,
    releases: int,
    seed: int,
    progress: Callable[[str], None],
) -> Iterator[_Test]:
    """Yield a test for every guess on ``copies`` replays of either input of each pair that is not always the same."""
    bound = gdp if promise.gaussian else clopper_pearson
    made, begun = 0, time.monotonic()
    if copies > TRIAL:
        _guessed(mechanism, pairs[0], TRIAL, releases, derive(seed, "mechanism", "trial"), seed)
        each = (time.monotonic() - begun) * copies / TRIAL
        progress(
            f"up to about {duration(each * len(pairs))}, as {TRIAL} of {copies} replays on one of"
            f" {len(pairs)} pairs took"
        )
        begun = time.monotonic()
    for number, pair in enumerate(pairs):
        passed = time.monotonic() - begun
        left = f"; about {duration(passed / number * (len(pairs) - number))} left" if number else ""
        progress(f"{number + 1} of {len(pairs)}: {pair.name}; 2 x {copies} replays{left}")
        rng = derive(seed, "mechanism", "replays", number)
        for name, there, gone in _guessed(mechanism, pair, copies, releases, rng, seed):
            if bool((there == there[0]).all()) and bool((gone == there[0]).all()):
                continue
            made += 1
            test = curve_test(there, gone, curve, rng=derive(seed, "mechanism", "split", number, made))
            shown = bound(
                there,
                gone,
                delta=promise.delta,
                confidence=1 - REFUTED_AT,
                rng=derive(seed, "mechanism", "bound", number, made),
                tried=TESTS * len(pairs),
            )
            allowed = promise.curve.hits(test.alarms)
            words = f"{test.hits:.3f} hits at {test.alarms:.3f} false alarms, where {allowed:.3f} are allowed"
            yield _Test(test.p_value, f"{name} on {pair.name}: {words}", shown.epsilon)


def _guessed(
    mechanism: AuditedMechanism, pair: Neighbors, copies: int, releases: int, rng: torch.Generator, seed: int
) -> list[tuple[str, Tensor, Tensor]]:
    """Return the guesses on ``copies`` replays of either input of ``pair``."""
    worlds = ([given] * copies for given in (pair.present, pair.absent))
    present, absent = (mechanism.replays(inputs, releases, rng) for inputs in worlds)
    return guesses(present, absent, pair, seed)


def _enough(promise: Promise, copies: int, level: float) -> tuple[float, float | None]:
    """Return the largest epsilon that as many replays can refute, and their power against Gaussian noise too small by
    1.5; None where the promise is of another kind."""
    curve = promise.curve
    seen = None if curve.mu is None else power(curve, TradeOff.gaussian(TOO_SMALL * curve.mu), copies, level)
    return largest_epsilon(curve, copies // 2, level, promise.delta), seen


def _largest_seldom(copies: int, level: float) -> float:
    """Return the largest pure epsilon that is refuted by answers that name the record in ``SELDOM`` of the replays, and
    never where it is not there."""
    counted = copies - int(CHOOSING * copies)
    hits, none = np.array(np.floor(SELDOM * counted)), np.array(0.0)

    def refuted(epsilon: float) -> bool:
        curve = Curve.of(TradeOff(None, (epsilon,), (0.0,)))
        return float(curve.p_value(hits, counted, none, counted, Joined())) <= level

    return largest_refuted(refuted)


def _suffices(promise: Promise, largest: float, seen: float | None) -> bool:
    return largest >= promise.epsilon if seen is None else seen >= ENOUGH


def _wanted(promise: Promise, level: float) -> int:
    return next((n for n in REPLAYS if _suffices(promise, *_enough(promise, n, level))), REPLAYS[-1])
