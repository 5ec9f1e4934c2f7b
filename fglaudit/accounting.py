"""Epsilon, by dp-accounting: calibration of noise and composition of what was released.

Defenses state facts (events); the accountant here judges them and refuses what it cannot judge. All epsilons are for the
add-or-remove form "one record's contribution is zeroed out", unless a guarantee says otherwise.
"""

from __future__ import annotations

import math

import dp_accounting
from dp_accounting import pld

from fglaudit.errors import FglauditError

MAX_EPSILON = 1e4
"""Above this the accountant's numerics fail and the number means nothing anyway."""
_CALIBRATIONS = 8


def _accountant(scale: float) -> pld.PLDAccountant:
    # The grid's cost grows with the range of losses it must cover, so its step follows the expected epsilon.
    return pld.PLDAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        value_discretization_interval=max(1e-4, scale * 2e-6),
    )


def check_budget(epsilon: float, delta: float) -> None:
    """Raise unless 0 < epsilon <= 10000 and 0 < delta < 1."""
    if not (0 < epsilon <= MAX_EPSILON and math.isfinite(epsilon)):
        raise FglauditError(
            f"epsilon must be positive and at most {MAX_EPSILON:g}; got {epsilon}; use e.g. epsilon: 8, "
            "or the defense `none` for no noise"
        )
    if not 0 < delta < 1:
        raise FglauditError(f"delta must lie strictly between 0 and 1; got {delta}; use e.g. delta: 1.0e-5")


def epsilon_of(event: dp_accounting.DpEvent, delta: float, *, scale: float = 1.0) -> float:
    """Return the epsilon of ``event`` at ``delta``; ``scale`` is its order of magnitude (precision is a few millionths of it).

    Raises:
        FglauditError: if the accountant does not support the event.
    """
    accountant = _accountant(scale)
    if not accountant.supports(event):
        raise FglauditError(f"the accountant must support every released event; it refuses {event}; state it another way")
    return float(accountant.compose(event).get_epsilon(delta))


def gaussian_event(noise_multiplier: float, releases: int) -> dp_accounting.DpEvent:
    """Return the event of ``releases`` Gaussian mechanisms, each with noise std ``noise_multiplier`` x its sensitivity."""
    return dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise_multiplier), releases)


def gaussian_noise_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """Return the smallest noise std per unit of L2 sensitivity that gives (epsilon, delta) over ``releases`` releases."""
    check_budget(epsilon, delta)
    # T Gaussian releases compose exactly to one with sqrt(T) less noise, so a single release is calibrated.
    loss = pld.privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(
        pld.common.DifferentialPrivacyParameters(epsilon, delta)
    )
    return float(loss.standard_deviation) * math.sqrt(releases)


def accounted_noise_multiplier(epsilon: float, delta: float, releases: int = 1) -> tuple[float, float]:
    """Return a noise multiplier whose accounted epsilon is at most ``epsilon``, and that accounted epsilon.

    The accountant rounds losses upwards on a grid, so at large budgets it sees slightly more than the closed form does.
    """
    target = epsilon
    for _ in range(_CALIBRATIONS):
        multiplier = gaussian_noise_multiplier(target, delta, releases)
        accounted = epsilon_of(gaussian_event(multiplier, releases), delta, scale=epsilon)
        if accounted <= epsilon:
            return multiplier, accounted
        target *= epsilon / accounted
    raise FglauditError(
        f"epsilon {epsilon:g} is below what the accountant resolves; got {accounted:g} at best; use a larger epsilon"
    )
