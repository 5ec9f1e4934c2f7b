"""Empirical epsilon against mechanisms whose epsilon is known exactly."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from scipy.stats import binom, norm
from torch import Tensor

from fglaudit.empirical.estimates.bound import Bound
from fglaudit.empirical.estimates.clopper_pearson import clopper_pearson
from fglaudit.empirical.estimates.gdp import gdp
from fglaudit.empirical.estimates.one_run import one_run, p_value
from fglaudit.errors import FglauditError
from fglaudit.privacy.accounting import epsilon_of_mu
from fglaudit.rng import derive

DELTA = 1e-5


def laplace(bit: Tensor, epsilon: float, rng: torch.Generator) -> Tensor:
    """A bit with Laplace noise: (epsilon, 0)."""
    u = torch.rand(bit.shape, generator=rng, dtype=torch.double) - 0.5
    return bit.double() - u.sign() * torch.log1p(-2 * u.abs()) / epsilon


def randomised_response(bit: Tensor, epsilon: float, rng: torch.Generator) -> Tensor:
    """A bit that is true with probability ``e^epsilon / (1 + e^epsilon)``: (epsilon, 0)."""
    return (bit ^ (torch.rand(bit.shape, generator=rng) < 1 / (1 + math.exp(epsilon)))).double()


def gaussian(bit: Tensor, mu: float, rng: torch.Generator) -> Tensor:
    """A bit with Gaussian noise of standard deviation ``1 / mu``: mu-GDP."""
    return bit.double() + torch.randn(bit.shape, generator=rng, dtype=torch.double) / mu


Mechanism = Callable[[Tensor, float, torch.Generator], Tensor]


def estimate(method: str, mechanism: Mechanism, strength: float, runs: int, seed: int, delta: float = 0.0) -> Bound:
    """Return the 95 % bound from ``runs`` in all."""
    rng = derive(seed, "mechanism", mechanism.__name__, str(strength))
    bits = torch.arange(runs) % 2 == 0 if method != "one-run" else torch.rand(runs, generator=rng) < 0.5
    scores = mechanism(bits, strength, rng)
    if method == "one-run":
        return one_run(scores, bits, delta=delta, confidence=0.95, rng=rng)
    by_name = {"clopper-pearson": clopper_pearson, "gdp": gdp}
    return by_name[method](scores[bits], scores[~bits], delta=delta, confidence=0.95, rng=rng)


@pytest.mark.parametrize("method", ["clopper-pearson", "one-run"])
@pytest.mark.parametrize(
    ("mechanism", "epsilon"), [(laplace, 1.0), (randomised_response, 2.0), (randomised_response, 4.0)]
)
def test_a_95_percent_bound_rarely_exceeds_the_truth(method: str, mechanism: Mechanism, epsilon: float) -> None:
    bounds = [estimate(method, mechanism, epsilon, 1000, seed).epsilon for seed in range(100)]
    assert sum(b > epsilon for b in bounds) <= 10
    assert np.median(bounds) > 0.5 * epsilon  # and it is not by saying nothing


@pytest.mark.parametrize("method", ["clopper-pearson", "gdp", "one-run"])
def test_the_same_of_the_gaussian_mechanism(method: str) -> None:
    true = epsilon_of_mu(1.0, DELTA)
    bounds = [estimate(method, gaussian, 1.0, 1000, seed, DELTA).epsilon for seed in range(100)]
    assert sum(b > true for b in bounds) <= 10
    assert (
        np.median(bounds) > (0.6 if method == "gdp" else 0.1) * true
    )  # the tail of a Gaussian takes very many runs to see


@pytest.mark.parametrize("method", ["clopper-pearson", "one-run"])
@pytest.mark.parametrize("mechanism", [laplace, randomised_response])
@pytest.mark.parametrize(("epsilon", "runs"), [(0.5, 10_000), (1.0, 4000), (2.0, 2000), (4.0, 2000)])
def test_bounds_are_within_30_percent(method: str, mechanism: Mechanism, epsilon: float, runs: int) -> None:
    assert np.median([estimate(method, mechanism, epsilon, runs, seed).epsilon for seed in range(10)]) > 0.7 * epsilon


@pytest.mark.parametrize("mechanism", [laplace, randomised_response])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_a_thousand_canaries_are_enough_where_the_noise_is_known(mechanism: Mechanism, epsilon: float) -> None:
    """Whom to guess follows from the stated noise: a Laplace score speaks with all of epsilon outside of [0, 1], a bit
    always does."""
    share = (1 + math.exp(-epsilon)) / 4 if mechanism is laplace else 0.5
    bounds = []
    for seed in range(100):
        rng = derive(seed, "known noise", mechanism.__name__, str(epsilon))
        bits = torch.rand(1000, generator=rng) < 0.5
        scores = mechanism(bits, epsilon, rng)
        bounds.append(one_run(scores, bits, delta=0.0, confidence=0.95, rng=rng, shares=(share, share)).epsilon)
    assert np.median(bounds) > 0.7 * epsilon
    assert sum(b > epsilon for b in bounds) <= 10


def test_perfect_scores_reach_the_ceiling() -> None:
    bits = torch.arange(1000) % 2 == 0
    scores = bits.double()
    pair = clopper_pearson(scores[bits], scores[~bits], delta=0.0, confidence=0.95, rng=derive(0, "a"))
    hit, alarm = (
        0.01 ** (1 / 400),
        1 - 0.04 ** (1 / 400),
    )  # a fifth of the runs chose; 1 % and 4 % are the errors' shares
    assert pair.trials == 800 and pair.epsilon == pytest.approx(pair.ceiling) == pytest.approx(math.log(hit / alarm))
    single = one_run(scores, bits, delta=0.0, confidence=0.95, rng=derive(0, "b"), shares=(0.5, 0.5))
    q = 0.05 ** (1 / 1000)
    assert single.epsilon == pytest.approx(single.ceiling) == pytest.approx(math.log(q / (1 - q)), abs=1e-6)
    curve = gdp(scores[bits], scores[~bits], delta=DELTA, confidence=0.95, rng=derive(0, "c"))
    assert (
        curve.epsilon
        == pytest.approx(curve.ceiling)
        == pytest.approx(epsilon_of_mu(2 * norm.ppf(0.025 ** (1 / 400)), DELTA))
    )


def test_scores_that_say_nothing_show_nothing() -> None:
    for seed in range(20):
        rng = derive(seed, "nothing")
        a, b = torch.randn(2, 500, generator=rng)
        assert clopper_pearson(a, b, delta=0.0, confidence=0.999, rng=rng).epsilon == 0
        assert gdp(a, b, delta=DELTA, confidence=0.999, rng=rng).epsilon == 0
        assert one_run(a, b > 0, delta=0.0, confidence=0.999, rng=rng).epsilon == 0


@pytest.mark.parametrize("method", ["clopper-pearson", "gdp", "one-run"])
def test_a_p_value_is_the_confidence_at_which_the_bound_meets_what_is_stated(method: str) -> None:
    bound = estimate(method, gaussian, 2.0, 1000, 0, DELTA if method == "gdp" else 0.0)
    assert bound.at(0.05) == pytest.approx(bound.epsilon)
    for error in (0.3, 1e-3, 1e-8):
        assert bound.p_value(bound.at(error)) == pytest.approx(error, rel=1e-3)
    assert bound.p_value(0.0) < 1e-8 < bound.p_value(0.9 * bound.epsilon) < 0.05 < bound.p_value(1.1 * bound.epsilon)
    assert bound.p_value(1e6) == 1


def test_p_values_of_an_honest_mechanism_are_not_too_small() -> None:
    true = epsilon_of_mu(1.0, DELTA)
    p_values = np.sort([estimate("gdp", gaussian, 1.0, 1000, seed, DELTA).p_value(true) for seed in range(100)])
    assert (p_values < 0.05).sum() <= 10 and (p_values < 0.3).sum() <= 40


def test_more_tries_cost_confidence() -> None:
    rng = derive(0, "tries")
    a, b = torch.randn(2, 1000, generator=rng)
    one, many = (clopper_pearson(a + 2, b, delta=0.0, confidence=0.95, rng=derive(1), tried=n).epsilon for n in (1, 50))
    assert 0 < many < one


@pytest.mark.parametrize("mu", [0.3, 1.0, 5.0, 60.0])
def test_the_gaussian_conversion_is_exact(mu: float) -> None:
    epsilon = epsilon_of_mu(mu, DELTA)
    z = np.linspace(
        -12, 12, 200_001
    )  # delta is the integral of (density with - e^epsilon density without), where positive
    gap = np.maximum(norm.pdf(z) - np.exp(np.minimum(epsilon - mu * z - mu * mu / 2, 700)) * norm.pdf(z), 0)
    assert trapezoid(gap, z) == pytest.approx(DELTA, rel=1e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_the_one_run_p_value_is_the_theorems(delta: float) -> None:
    m, r, v, epsilon = 60, 40, 33, 0.7
    q = math.exp(epsilon) / (1 + math.exp(epsilon))

    def tail(k: int) -> float:
        return float(sum(math.comb(r, j) * q**j * (1 - q) ** (r - j) for j in range(k, r + 1)))

    slope = max((tail(v - i) - tail(v)) / i for i in range(1, v + 1))
    assert p_value(v, r, m, epsilon, delta) == pytest.approx(tail(v) + 2 * m * delta * slope)
    values = [p_value(v, r, m, step / 40, delta) for step in range(240)]
    assert np.all(np.diff(values) >= -1e-12)
    assert p_value(v, r, m, epsilon, 0.0) == pytest.approx(float(binom.sf(v - 1, r, q)))


def test_one_run_counts_what_delta_excuses() -> None:
    """Revealing every bit with probability delta is (0, delta)-private, and all guesses are right that often."""
    for m in (20, 200):
        assert p_value(m, m, m, 0.0, 0.01) >= 0.01
    bits = torch.arange(200) % 2 == 0
    bounds = [
        one_run(bits.double(), bits, delta=d, confidence=0.95, rng=derive(0), shares=(0.5, 0.5)) for d in (0.0, 0.1)
    ]
    assert bounds[0].epsilon > 3 and bounds[1].epsilon == 0


BAD: list[tuple[dict[str, object], str]] = [
    ({"confidence": 1.0}, "confidence"),
    ({"delta": -0.1}, "delta"),
    ({"delta": 1.0}, "delta"),
    ({"tried": 0}, "tried"),
]


@pytest.mark.parametrize(("change", "word"), BAD)
def test_bad_settings_are_refused(change: dict[str, object], word: str) -> None:
    settings = {"delta": DELTA, "confidence": 0.95, "rng": derive(0), **change}
    scores = torch.arange(40.0)
    estimates: list[Callable[[], Bound]] = [
        lambda: clopper_pearson(scores, scores, **settings),  # type: ignore[arg-type]
        lambda: gdp(scores, scores, **settings),  # type: ignore[arg-type]
        lambda: one_run(scores, scores > 3, **settings),  # type: ignore[arg-type]
    ]
    for refused in estimates:
        with pytest.raises(FglauditError, match=word):
            refused()


def test_bad_scores_are_refused() -> None:
    good, few, broken = torch.arange(40.0), torch.arange(5.0), torch.full((40,), float("nan"))
    for scores, word in ((few, "at least 20"), (broken, "finite")):
        with pytest.raises(FglauditError, match=word):
            clopper_pearson(good, scores, delta=0.0, confidence=0.95, rng=derive(0))
        with pytest.raises(FglauditError, match=word):
            one_run(scores, scores > 0, delta=0.0, confidence=0.95, rng=derive(0))
    with pytest.raises(FglauditError, match="shares"):
        one_run(good, good > 3, delta=0.0, confidence=0.95, rng=derive(0), shares=(0.8, 0.8))
    with pytest.raises(FglauditError, match="delta in"):
        gdp(good, good + 30, delta=0.0, confidence=0.95, rng=derive(0))
