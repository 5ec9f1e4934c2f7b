"""Epsilon of Gaussian mechanisms on samples: exact at rate 1, amplified below, never above what no sampling gives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm

from fglaudit.errors import FglauditError
from fglaudit.privacy.accounting import Relation, epsilon_of, epsilon_of_mu, event_of, noise_multiplier, poisson_sampled
from fglaudit.privacy.subsampled_accounting import fixed_sample_epsilon, poisson_losses_epsilon, smallest_multiplier

DELTA = 1e-5


def test_all_records_are_the_plain_mechanism() -> None:
    exact = epsilon_of_mu(np.sqrt(50) / 6.0, DELTA)
    assert fixed_sample_epsilon(12.0, 9, 9, 50, DELTA) == pytest.approx(exact)  # replaced: two clips
    assert (
        exact <= poisson_losses_epsilon(6.0, 1.0, 3, 50, DELTA) <= 1.15 * exact
    )  # Renyi composition is an upper bound


def test_smaller_samples_cost_less() -> None:
    fixed = [fixed_sample_epsilon(12.0, m, 100, 50, DELTA) for m in (1, 5, 20, 100)]
    poisson = [poisson_losses_epsilon(6.0, q, 3, 50, DELTA) for q in (0.01, 0.1, 0.5, 1.0)]
    assert fixed == sorted(fixed) and poisson == sorted(poisson)
    assert fixed[0] < fixed[-1] / 5 and poisson[0] < poisson[-1] / 5


def test_more_losses_of_one_record_cost_more_in_the_noise_per_loss() -> None:
    per_loss = [poisson_losses_epsilon(6.0 / m, 0.1, m, 50, DELTA) for m in (1, 2, 5, 10)]
    assert per_loss == sorted(per_loss)


@pytest.mark.parametrize("losses", [1, 3])
def test_the_bound_for_poisson_samples_is_above_the_worst_pair(losses: int) -> None:
    """Opposite gradients in every loss: both outputs are mixtures of Gaussians, whose delta can be integrated."""
    rate, z, epsilon = 0.3, 1.5, 0.2
    drawn = np.arange(losses + 1)
    chance = binom.pmf(drawn, losses, rate)
    shift = drawn / losses / 2  # present at +shift, absent at -shift, apart by drawn / losses

    def density(x: float, sign: int) -> float:
        return float((chance * norm.pdf(x, sign * shift, z)).sum())

    delta, _ = quad(lambda x: max(density(x, 1) - np.exp(epsilon) * density(x, -1), 0.0), -30, 30, limit=500)
    assert delta > 1e-6
    assert poisson_losses_epsilon(z, rate, losses, 1, delta) >= epsilon


def test_calibration_uses_up_the_budget_and_no_more() -> None:
    multiplier, accounted = smallest_multiplier(lambda z: fixed_sample_epsilon(z, 2, 20, 30, DELTA), 4.0, DELTA)
    assert 3.9 < accounted <= 4
    assert multiplier < noise_multiplier("gaussian", 4.0, DELTA, Relation.REPLACE, 30)


def test_impossible_samples_are_refused() -> None:
    with pytest.raises(FglauditError, match="1 and 5 of 5 records; got 6"):
        fixed_sample_epsilon(1.0, 6, 5, 1, DELTA)
    with pytest.raises(FglauditError, match=r"got 0"):
        fixed_sample_epsilon(1.0, 0, 5, 1, DELTA)
    for rate in (0.0, 1.2):
        with pytest.raises(FglauditError, match="sampling rate"):
            poisson_losses_epsilon(1.0, rate, 2, 1, DELTA)
    with pytest.raises(FglauditError, match="at least 1 loss"):
        poisson_losses_epsilon(1.0, 0.5, 0, 1, DELTA)
    with pytest.raises(FglauditError, match="epsilon must be positive"):
        smallest_multiplier(lambda z: 1 / z, 0.0, DELTA)


def test_the_library_prints_nothing_of_orders_that_it_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    event = poisson_sampled(event_of("gaussian", 2.0), 0.5)
    assert 1.3 < epsilon_of(event, 1e-5, Relation.ZERO_OUT) < 1.4
    assert not [line for line in caplog.records if line.name == "absl"]
