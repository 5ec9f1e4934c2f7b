"""What this tool accounted of a defense: the event that was composed, and the noise that it was composed from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp_accounting import DpEvent

from fglaudit.privacy.accounting import Relation, epsilon_of_mu, gaussian_mu


@dataclass(frozen=True)
class Noised:
    """Noise on one released payload, or on gradients.

    Attributes:
        payload: its name; "gradients" for local training, "rows" where feature rows are made random before use.
        by_server: whether the server releases it.
        distribution: "gaussian", "laplace", or the kind of a randomised report.
        scale: of the noise, as in ``fglaudit.facts.Additive``.
        sensitivity: how far one record moves one release, in the norm that ``distribution`` asks for.
        releases: how often it is released.
        elementwise: whether ``sensitivity`` is that of every coordinate alone, and every coordinate is a release.
    """

    payload: str
    by_server: bool
    distribution: str
    scale: float
    sensitivity: float
    releases: int
    elementwise: bool = False


@dataclass(frozen=True)
class Accounted:
    """A guarantee as this tool accounts it from facts, clip, relation and releases.

    Attributes:
        epsilon: at ``delta``, composed over all releases.
        event: what was composed, with noise per clip as ``fglaudit.privacy.accounting`` has it.
        unit: what one record is.
        mechanisms: what the event was made of.
    """

    epsilon: float
    delta: float
    unit: str
    relation: Relation
    event: DpEvent
    mechanisms: tuple[Noised, ...]

    @property
    def mu(self) -> float | None:
        """The mu of all releases together, where the epsilon is that of Gaussian noise and of nothing else: what random
        samples hide is no Gaussian mechanism."""
        mu = gaussian_mu(self.event, self.relation) if self.delta else None
        if mu is None or not math.isclose(epsilon_of_mu(mu, self.delta), self.epsilon, rel_tol=1e-3):
            return None
        return mu

    @property
    def exact(self) -> bool:
        """Whether the epsilon is that of the stated noise and no upper bound on it. What random samples of losses hide
        is bounded, and of Laplace noise on gradients not accounted at all."""
        pure = self.delta == 0 and all(part.payload != "gradients" for part in self.mechanisms)
        return pure or self.mu is not None
