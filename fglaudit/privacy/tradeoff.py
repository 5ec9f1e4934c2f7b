"""The trade-off curve of everything that was released: what every test of "is the record there?" must pay.

``beta(alpha)`` is the smallest rate of misses that any test with a rate of false alarms ``alpha`` can have (Dong, Roth
and Su, "Gaussian differential privacy", JRSS B 2022, definitions 2.1 and 2.2). A point (epsilon, delta) is one pair of
lines below it (proposition 2.5 and equation 5), and says little of where the curve itself lies: 100 Gaussian releases
with noise too small by 1.5 are seen against the curve in a few thousand replays, and never against the point.

Gaussian releases compose to one, exactly. Laplace noise, randomised response and Poisson samples go to privacy loss
distributions; for what these do not know, the lines of many (epsilon, delta) that an accountant states bound the curve
from below. Every curve here is a lower bound of the true one: a test below it contradicts the account.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting import DpEvent, NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import norm

from fglaudit.errors import FglauditError
from fglaudit.privacy.accounting import LIBRARY_RELATIONS, Relation, epsilon_of, epsilon_of_mu, gaussian_mu, parts_of

Array = npt.NDArray[np.float64]

LINES = 400
"""Points (epsilon, delta) by which a curve is bounded."""
_STATED_DELTAS = (0.3, 0.1, 0.03, 1e-3, 1e-5)
_STEPS = 5e3
"""Grid steps of a privacy loss distribution up to its own pure or expected epsilon."""


@dataclass(frozen=True)
class TradeOff:
    """A trade-off curve.

    Attributes:
        mu: of a Gaussian mechanism, the curve is then ``Phi(Phi^-1(1 - alpha) - mu)``; None for any other one.
        epsilons, deltas: points [L] of (epsilon, delta)-privacy that bound the curve, where there is no ``mu``.
        event, relation: what was composed; None where the curve was given.
    """

    mu: float | None = None
    epsilons: tuple[float, ...] = ()
    deltas: tuple[float, ...] = ()
    event: DpEvent | None = None
    relation: Relation | None = None

    @staticmethod
    def gaussian(mu: float) -> TradeOff:
        """Return the curve of two normal distributions ``mu`` standard deviations apart; 0: nothing is to be seen."""
        return TradeOff(mu=mu)

    @staticmethod
    def of(event: DpEvent, relation: Relation, delta: float = 1e-5) -> TradeOff:
        """Return the curve of ``event``, with noise per clip, for a record that is changed as ``relation`` says.

        Args:
            delta: at which its epsilon is stated; one of the points where only points are known.

        Raises:
            FglauditError: if no accountant judges the event.
        """
        parts = list(parts_of(event))
        if (mu := gaussian_mu(event, relation)) is not None:
            return TradeOff(mu=mu, event=event, relation=relation)
        try:
            epsilons, deltas = _from_losses(parts, event, relation)
        except dp_accounting.UnsupportedEventError:
            epsilons, deltas = _from_points(event, relation, delta)
        return TradeOff(None, tuple(epsilons), tuple(deltas), event, relation)

    def beta(self, alpha: Array) -> Array:
        """Return the smallest rate of misses at rates of false alarms ``alpha`` [...]."""
        alpha = np.asarray(alpha, dtype=np.float64)
        if self.mu is not None:
            return np.asarray(norm.cdf(norm.isf(alpha) - self.mu))
        flat = alpha.reshape(-1, 1)
        left = 1 - np.array(self.deltas)
        with np.errstate(over="ignore"):  # beyond an epsilon of 709 the factor is infinite, and bounds nothing
            power = np.exp(np.array(self.epsilons))
            fall = np.where(flat > 0, power * np.where(flat > 0, flat, 1.0), 0.0)  # infinite times 0 is no number
        lines = np.maximum(left - fall, (left - flat) / power)
        return np.asarray(np.clip(lines.max(1), 0.0, 1.0).reshape(alpha.shape))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at ``delta``.

        Raises:
            FglauditError: see :func:`fglaudit.privacy.accounting.epsilon_of`.
        """
        if self.mu is not None:
            return epsilon_of_mu(self.mu, delta)
        assert self.event is not None and self.relation is not None, "a curve without mu was made of an event"
        return epsilon_of(self.event, delta, self.relation)

    @property
    def pure(self) -> float:
        """Smallest epsilon at delta = 0; infinite where there is none."""
        return min((e for e, d in zip(self.epsilons, self.deltas, strict=True) if d == 0), default=math.inf)

    def hits(self, alpha: float) -> float:
        """Return the largest rate of hits at a rate of false alarms ``alpha``: ``1 - beta(alpha)``."""
        return float(1 - self.beta(np.array(alpha)))


def _from_losses(
    parts: list[tuple[DpEvent, int]], event: DpEvent, relation: Relation
) -> tuple[list[float], list[float]]:
    """Return points (epsilon, delta) of the composed privacy loss distribution."""
    try:
        pure = epsilon_of(event, 0.0, relation)
    except FglauditError:
        pure = math.inf
    expected = min(pure, epsilon_of(event, 1e-6, relation))
    if expected > 500:  # no test could tell the curve from zero, and the grid would not hold it
        return [pure] if math.isfinite(pure) else [expected], [0.0] if math.isfinite(pure) else [1e-6]
    step = max(expected, 1e-2) / _STEPS
    single = [(_losses(part, relation, step), count) for part, count in parts]
    whole = reduce(lambda a, b: a.compose(b), [one.self_compose(count) if count > 1 else one for one, count in single])
    epsilons = np.linspace(0, expected, LINES)
    deltas = np.maximum(np.asarray(whole.get_delta_for_epsilon(epsilons)), 0.0)
    if math.isfinite(pure):
        return [*epsilons.tolist(), pure], [*deltas.tolist(), 0.0]
    return epsilons.tolist(), deltas.tolist()


def _losses(part: DpEvent, relation: Relation, step: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Return an upper bound of the privacy loss distribution of one event.

    Raises:
        UnsupportedEventError: if there is none in the library.
    """
    rate, inner = 1.0, part
    if isinstance(part, dp_accounting.PoissonSampledDpEvent):
        rate, inner = part.sampling_probability, part.event
    if isinstance(inner, dp_accounting.GaussianDpEvent):
        library = LIBRARY_RELATIONS[relation]
        # With a fixed neighbour in its place a record is still sampled: added or removed is the curve of that.
        if library is NeighboringRelation.REPLACE_SPECIAL:
            library = NeighboringRelation.ADD_OR_REMOVE_ONE
        return privacy_loss_distribution.from_gaussian_mechanism(
            inner.noise_multiplier,
            value_discretization_interval=step,
            sampling_prob=rate,
            neighboring_relation=library,
        )
    if isinstance(inner, dp_accounting.LaplaceDpEvent) and rate == 1:
        return privacy_loss_distribution.from_laplace_mechanism(
            inner.noise_multiplier / relation.moves, value_discretization_interval=step
        )
    if isinstance(part, dp_accounting.RandomizedResponseDpEvent) and relation is Relation.REPLACE:
        return privacy_loss_distribution.from_randomized_response(
            part.noise_parameter, part.num_buckets, value_discretization_interval=step
        )
    raise dp_accounting.UnsupportedEventError(f"no privacy loss distribution of {part} is known")


def _from_points(event: DpEvent, relation: Relation, delta: float) -> tuple[list[float], list[float]]:
    """Return the points that an accountant states at a few deltas."""
    deltas = sorted({*_STATED_DELTAS, *((delta,) if delta > 0 else ())})
    return [max(epsilon_of(event, each, relation), 0.0) for each in deltas], deltas


def narrowed(event: DpEvent, factor: float) -> DpEvent:
    """Return ``event`` with all noise smaller by ``factor``: what an audit must be able to see.

    A randomised response tells the truth with ``factor`` times its odds' logarithm.

    Raises:
        FglauditError: if the event has noise of another kind.
    """
    if isinstance(event, dp_accounting.GaussianDpEvent | dp_accounting.LaplaceDpEvent):
        return type(event)(event.noise_multiplier / factor)
    if isinstance(event, dp_accounting.RandomizedResponseDpEvent):
        other = event.noise_parameter / event.num_buckets
        odds = ((1 - event.noise_parameter + other) / other) ** factor
        lie = 1 / (odds + event.num_buckets - 1)
        return dp_accounting.RandomizedResponseDpEvent(lie * event.num_buckets, event.num_buckets)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return dp_accounting.ComposedDpEvent([narrowed(part, factor) for part in event.events])
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return dp_accounting.SelfComposedDpEvent(narrowed(event.event, factor), event.count)
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return dp_accounting.PoissonSampledDpEvent(event.sampling_probability, narrowed(event.event, factor))
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        inner = narrowed(event.event, factor)
        return dp_accounting.SampledWithoutReplacementDpEvent(event.source_dataset_size, event.sample_size, inner)
    raise FglauditError(f"it is not known what less noise makes of {event}; state Gaussian or Laplace noise")
