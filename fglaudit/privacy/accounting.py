"""Epsilon, by dp-accounting: what was released, composed, and the noise that a budget asks for.

Defenses state events; the accountant here judges them and refuses what it cannot judge. A *noise multiplier* is the
scale of the noise per *clip*, the clip being the most that one record contributes (dp-accounting's own definition). How
far the output moves between neighbouring data sets depends on the neighbouring relation, an argument of every function
here: one clip where the record is added, removed or zeroed out, two where it is replaced by another. The library's
accountants do not agree on this (the one by privacy loss distributions counts two clips for a replaced record, the
Renyi one a single clip), so multipliers are halved for the latter.

Gaussian releases compose exactly to one (Dong, Roth and Su 2022, corollary 3.3), which has a closed form (Balle and
Wang 2018). Events with Laplace noise or randomised response get the smaller of plain addition and Renyi composition, an
upper bound a few per cent above the exact one, whose grid would cost minutes for many releases. Everything else goes to
privacy loss distributions first.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import lru_cache

import dp_accounting
import numpy as np
from dp_accounting import DpEvent, NeighboringRelation, pld, rdp

from fglaudit.errors import FglauditError

MAX_EPSILON = 1e4
"""Above this the accountants' numerics fail and the number means nothing anyway."""
VANISHING_EPSILON = 1e10
"""At which Gaussian noise, whose epsilon has a closed form, is 7e-6 times its sensitivity: next to none."""
_NO_NOISE = 1e100
"""A mu whose square is still a number; the epsilon is about half of that."""
_BISECTIONS = 60
_ADDED_UP = (dp_accounting.LaplaceDpEvent, dp_accounting.RandomizedResponseDpEvent)
_SCALE_FREE = (dp_accounting.NoOpDpEvent, dp_accounting.NonPrivateDpEvent, dp_accounting.RandomizedResponseDpEvent)


class Relation(StrEnum):
    """What neighbouring data sets are: what happens to one record."""

    ADD_OR_REMOVE = "added or removed"
    ZERO_OUT = "zeroed out"  # or back; who has a record stays public
    REPLACE = "replaced"  # by any other

    @property
    def moves(self) -> int:
        """How many clips the sum of clipped contributions moves at most."""
        return 2 if self is Relation.REPLACE else 1

    def of(self, record: str) -> str:
        """Return the adjacency in words, for a guarantee about features."""
        return f"{record} {self}; edges and labels public"


LIBRARY_RELATIONS = {
    Relation.ADD_OR_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Relation.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    Relation.REPLACE: NeighboringRelation.REPLACE_ONE,
}


def check_budget(epsilon: float, delta: float, *, pure: bool = False, most: float = MAX_EPSILON) -> None:
    """Raise :class:`FglauditError` unless 0 < epsilon <= ``most`` and 0 < delta < 1; ``pure`` allows delta = 0 too."""
    if not 0 < epsilon <= most:
        raise FglauditError(f"epsilon must be positive and at most {most:g}; got {epsilon}; use e.g. 8")
    if not (0 < delta < 1 or (pure and delta == 0)):
        raise FglauditError(f"delta must lie strictly between 0 and 1; got {delta}; use e.g. delta: 1.0e-5")


def event_of(distribution: str, multiplier: float) -> DpEvent:
    """Return the event of one release with "gaussian" or "laplace" noise of ``multiplier`` times the clip.

    Raises:
        FglauditError: unless the multiplier is positive and finite.
    """
    if not (multiplier > 0 and math.isfinite(multiplier)):
        raise FglauditError(
            f"a noise multiplier must be positive and finite; got {multiplier}; add noise, or state no event"
        )
    return {"gaussian": dp_accounting.GaussianDpEvent, "laplace": dp_accounting.LaplaceDpEvent}[distribution](
        multiplier
    )


def response_event(keep: float, classes: int) -> DpEvent:
    """Return one k-ary response: the true one of ``classes`` with probability ``keep``, else any other one.

    Raises:
        FglauditError: unless the true one is at least as likely as any other: who lies more often tells by it.
    """
    if not (classes > 1 and 1 / classes <= keep <= 1):
        raise FglauditError(
            f"a k-ary response keeps the true one of at least 2 classes with a probability in [1 / classes, 1]; got"
            f" {keep:g} of {classes}; say another class less often"
        )
    return dp_accounting.RandomizedResponseDpEvent((1 - keep) * classes / (classes - 1), classes)


def compose(event: DpEvent, count: int) -> DpEvent:
    """Return the event of releasing ``event`` ``count`` times with fresh noise.

    Raises:
        FglauditError: if ``count`` is not at least 1.
    """
    if count < 1:
        raise FglauditError(f"a release is composed at least once; got {count} times; state how often it happens")
    return dp_accounting.SelfComposedDpEvent(event, count)


def compose_all(events: Sequence[DpEvent]) -> DpEvent:
    """Return the event of all ``events``, each with noise of its own."""
    return dp_accounting.ComposedDpEvent(list(events))


def poisson_sampled(event: DpEvent, rate: float) -> DpEvent:
    """Return ``event`` on a sample that every record enters independently with probability ``rate``; at 1 that is
    ``event`` itself, of which more accountants know something.

    Raises:
        FglauditError: unless 0 < rate <= 1.
    """
    if not 0 < rate <= 1:
        raise FglauditError(
            f"a sampling rate lies in (0, 1]; got {rate}; use the expected share of the records in a batch"
        )
    return event if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, event)


def fixed_size_sampled(event: DpEvent, size: int, population: int) -> DpEvent:
    """Return ``event`` on ``size`` of ``population`` records drawn without replacement; for replaced records alone.

    Raises:
        FglauditError: unless 1 <= size <= population.
    """
    if not 1 <= size <= population:
        raise FglauditError(
            f"a sample has between 1 and {population} of {population} records; got {size}; change the batch size"
        )
    return dp_accounting.SampledWithoutReplacementDpEvent(population, size, event)


def epsilon_of(event: DpEvent, delta: float, relation: Relation) -> float:
    """Return the epsilon of ``event`` at ``delta`` under ``relation``; delta = 0 asks for pure differential privacy.

    Raises:
        FglauditError: if delta is not in [0, 1), or no accountant judges the event under this relation.
    """
    if not 0 <= delta < 1:
        raise FglauditError(f"delta must lie in [0, 1); got {delta}; use e.g. delta: 1.0e-5")
    parts = list(parts_of(event))
    if delta > 0 and (mu := gaussian_mu(event, relation)) is not None:
        return epsilon_of_mu(mu, delta)
    pure = math.fsum(count * _pure_epsilon(part, relation) for part, count in parts)
    if delta == 0:
        if math.isinf(pure):
            raise FglauditError(
                f"only Laplace noise and randomised response have an epsilon at delta = 0; got {event}; set delta"
            )
        return pure
    return min(pure, _by_accountant(event, delta, relation, [part for part, _ in parts]))


def gaussian_mu(event: DpEvent, relation: Relation) -> float | None:
    """Return the mu of Gaussian releases together; None where any part is no Gaussian release."""
    parts = list(parts_of(event))
    if not all(isinstance(part, dp_accounting.GaussianDpEvent) for part, _ in parts):
        return None
    return math.hypot(*(math.sqrt(count) * relation.moves / part.noise_multiplier for part, count in parts))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the exact epsilon, at least 0, of the Gaussian mechanism with sensitivity ``mu`` standard deviations.

    Raises:
        FglauditError: unless 0 < delta < 1.
    """
    if not 0 < delta < 1:
        raise FglauditError(
            f"a Gaussian mechanism has an epsilon only for delta in (0, 1); got {delta}; use e.g. 1.0e-5"
        )
    if mu > _NO_NOISE:
        return math.inf
    return max(_epsilon_gaussian(1 / mu, delta), 0.0) if mu > 0 else 0.0


def noise_multiplier(distribution: str, epsilon: float, delta: float, relation: Relation, releases: int = 1) -> float:
    """Return the smallest noise multiplier with which ``releases`` releases spend at most ``epsilon`` at ``delta``.

    Raises:
        FglauditError: see :func:`check_budget`; delta = 0 is allowed for Laplace noise.
    """
    most = VANISHING_EPSILON if distribution == "gaussian" else MAX_EPSILON
    check_budget(epsilon, delta, pure=distribution == "laplace", most=most)
    compose(event_of(distribution, 1.0), releases)
    if distribution == "gaussian":
        # A hair above the root that was found numerically, so that it is on the safe side.
        return _sigma_gaussian(epsilon, delta) * (1 + 1e-9) * relation.moves * math.sqrt(releases)
    low, high = 0.0, relation.moves * releases / epsilon  # enough by plain addition
    if delta == 0:
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if epsilon_of(compose(event_of("laplace", middle), releases), delta, relation) <= epsilon:
            high = middle
        else:
            low = middle
    return high


# The library looks for a root, and replays bind the same defense hundreds of times.
@lru_cache(maxsize=256)
def _epsilon_gaussian(sigma: float, delta: float) -> float:
    return float(dp_accounting.get_epsilon_gaussian(sigma, delta))


@lru_cache(maxsize=256)
def _sigma_gaussian(epsilon: float, delta: float) -> float:
    with np.errstate(divide="ignore"):  # the library's logarithm of what is 0 next to no noise
        return float(dp_accounting.get_sigma_gaussian(epsilon, delta))


def parts_of(event: DpEvent, count: int = 1) -> Iterator[tuple[DpEvent, int]]:
    """Yield what ``count`` times ``event`` is composed of, with how often it happens."""
    if isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            yield from parts_of(part, count)
    elif isinstance(event, dp_accounting.SelfComposedDpEvent):
        yield from parts_of(event.event, count * event.count)
    elif not isinstance(event, dp_accounting.NoOpDpEvent):
        yield event, count


def _pure_epsilon(event: DpEvent, relation: Relation) -> float:
    """Return the epsilon of ``event`` at delta = 0."""
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        return float(relation.moves / event.noise_multiplier)
    if isinstance(event, dp_accounting.RandomizedResponseDpEvent) and relation is Relation.REPLACE:
        other = event.noise_parameter / event.num_buckets
        return float(math.log((1 - event.noise_parameter + other) / other)) if other > 0 else math.inf
    return math.inf


def _by_accountant(event: DpEvent, delta: float, relation: Relation, parts: Sequence[DpEvent]) -> float:
    halved = _rescaled(event, relation.moves)
    renyi = rdp.RdpAccountant(neighboring_relation=LIBRARY_RELATIONS[relation])
    if any(isinstance(part, _ADDED_UP) for part in parts) and renyi.supports(halved):
        return float(renyi.compose(halved).get_epsilon(delta))
    # The grid's cost grows with the range of losses that it must cover, so its step follows the expected epsilon.
    rough = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    with _library_is_silent():
        expected = float(rough.compose(halved).get_epsilon(delta)) if rough.supports(halved) else 1.0
    grid = pld.PLDAccountant(LIBRARY_RELATIONS[relation], max(1e-4, expected * 2e-6))
    # This accountant of the library (0.6) composes a randomised response once, however often it happens.
    if grid.supports(event) and not any(isinstance(part, dp_accounting.RandomizedResponseDpEvent) for part in parts):
        return float(grid.compose(event).get_epsilon(delta))
    try:
        return float(renyi.compose(halved).get_epsilon(delta))
    except dp_accounting.UnsupportedEventError as reason:
        raise FglauditError(
            f"an accountant must support every released event; none does for records that are {relation}: {reason};"
            " state it another way"
        ) from None


@contextmanager
def _library_is_silent() -> Iterator[None]:
    """Keep the library from printing a line for every Renyi order that it leaves out, where a rough value will do."""
    library = logging.getLogger("absl")
    level = library.level
    library.setLevel(logging.ERROR)
    try:
        yield
    finally:
        library.setLevel(level)


def _rescaled(event: DpEvent, moves: int) -> DpEvent:
    """Return ``event`` with noise multipliers per distance of the outputs instead of per clip."""
    if isinstance(event, dp_accounting.GaussianDpEvent | dp_accounting.LaplaceDpEvent):
        return type(event)(event.noise_multiplier / moves)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return compose_all([_rescaled(part, moves) for part in event.events])
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return compose(_rescaled(event.event, moves), event.count)
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return poisson_sampled(_rescaled(event.event, moves), event.sampling_probability)
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        return fixed_size_sampled(_rescaled(event.event, moves), event.sample_size, event.source_dataset_size)
    if moves > 1 and not isinstance(event, _SCALE_FREE):
        raise FglauditError(
            f"it is not known how the noise of {event} compares with a clip; state the event for one record zeroed out"
        )
    return event
