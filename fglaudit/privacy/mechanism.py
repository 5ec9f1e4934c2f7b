"""Additive noise on clipped values: the one place where clip, sensitivity and noise are tied together.

What is clipped contributes at most ``clip`` in the mechanism's norm, whatever it was made from. Under the neighbouring
relation it moves by ``relation.moves`` clips, and all messages of one release together by ``gain`` times that: the
*sensitivity*, joint over the release. The noise has the scale ``multiplier x gain x clip``, so that the accountant sees
the multiplier alone.

Gaussian noise hides distances in L2, Laplace noise in L1 (Dwork and Roth 2014, sections 3.3 and A.1), and a clip in the
other norm is refused. A clip of every coordinate to [-clip, clip] suits both: n coordinates are n releases.

Noise is drawn in double precision. A standard normal number drawn in single precision ends at 5.8, inside of what a
delta of 1e-5 allows for: seen from the neighbouring data set, what lies beyond would be impossible instead of unlikely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fglaudit.errors import FglauditError, unknown
from fglaudit.facts import Additive, Clipped, Target
from fglaudit.privacy.accounting import Relation, compose, epsilon_of, event_of, noise_multiplier

Distribution = Literal["gaussian", "laplace"]
ClipNorm = Literal["l1", "l2", "elementwise"]
NORMS: dict[str, ClipNorm] = {"gaussian": "l2", "laplace": "l1"}
"""Distributions, and the norm in which each one's sensitivity is measured."""
ELEMENTWISE = "elementwise"
_ORDERS = {"l1": 1, "l2": 2}


@dataclass(frozen=True)
class Mechanism:
    """Noise of one distribution on values of which one record's share is clipped.

    Attributes:
        distribution: "gaussian" or "laplace".
        norm: of the clip: the distribution's own ("l2", "l1"), or "elementwise".
        clip: largest norm of one record's share; of every coordinate if elementwise.
        relation: what neighbouring data sets are.
        multiplier: scale of the noise per clip and gain.
        gain: norm of the change of all messages of one release when what is clipped changes by norm 1.
    """

    distribution: str
    norm: str
    clip: float
    relation: Relation
    multiplier: float
    gain: float = 1.0

    def __post_init__(self) -> None:
        check_norm(self.distribution, self.norm)
        check_clip(self.clip)
        for name in ("multiplier", "gain"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise FglauditError(
                    f"the {name} of a noise mechanism must be positive and finite; got {value}; change it"
                )
        if self.norm == ELEMENTWISE and self.gain != 1:
            raise FglauditError(
                f"a gain is of a norm of what is clipped; got gain {self.gain:g} with an elementwise clip; clip in "
                f"{NORMS[self.distribution]}"
            )

    @property
    def sensitivity(self) -> float:
        """How far one release moves between neighbouring data sets; per coordinate if the clip is elementwise."""
        return self.relation.moves * self.gain * self.clip

    @property
    def scale(self) -> float:
        """Standard deviation of Gaussian noise, scale of Laplace noise."""
        return self.multiplier * self.gain * self.clip

    def clipped(self, values: Tensor) -> Tensor:
        """Return messages [P, ...] of which each is clipped."""
        return clip_messages(values, self.clip, self.norm)

    def with_noise(self, values: Tensor, rng: torch.Generator) -> Tensor:
        """Return ``values`` with fresh noise on every entry; the shape, type and device stay."""
        return values + (self.scale * draw(self.distribution, values.shape, rng)).to(values)

    def event(self, releases: int, coordinates: int = 1) -> DpEvent:
        """Return the event of ``releases`` messages; an elementwise clip counts each of their ``coordinates``."""
        return compose(
            event_of(self.distribution, self.multiplier), releases * (coordinates if self.norm == ELEMENTWISE else 1)
        )

    def epsilon(self, delta: float, releases: int, coordinates: int = 1) -> float:
        """Return the epsilon of :meth:`event` at ``delta``."""
        return epsilon_of(self.event(releases, coordinates), delta, self.relation)


def clip_fact(mechanism: Mechanism, target: Target, *, per: str = "message", around: str = "zero") -> Clipped:
    """Return the public fact that ``target`` was clipped as ``mechanism`` needs it."""
    norm = mechanism.norm if mechanism.norm == ELEMENTWISE else mechanism.norm.upper()
    return Clipped(target, norm, mechanism.clip, per, around)


def noise_fact(mechanism: Mechanism, target: Target) -> Additive:
    """Return the public fact that ``target`` got the noise of ``mechanism``."""
    return Additive(target, mechanism.distribution, mechanism.scale)


def calibrated(
    distribution: str,
    clip: float,
    relation: Relation,
    *,
    epsilon: float,
    delta: float,
    releases: int,
    gain: float = 1.0,
) -> Mechanism:
    """Return the mechanism with the least noise of which ``releases`` releases spend at most (``epsilon``, ``delta``).

    Raises:
        FglauditError: if the budget is out of range or the clip is not positive.
    """
    if distribution not in NORMS:
        raise unknown("mechanism", distribution, NORMS)
    multiplier = noise_multiplier(distribution, epsilon, delta, relation, releases)
    return Mechanism(distribution, NORMS[distribution], clip, relation, multiplier, gain)


def check_norm(distribution: str, norm: str) -> None:
    """Raise :class:`FglauditError` unless noise of this distribution hides what is clipped in this norm."""
    if distribution not in NORMS:
        raise unknown("mechanism", distribution, NORMS)
    if norm not in (*_ORDERS, ELEMENTWISE):
        raise unknown("norm", norm, (*_ORDERS, ELEMENTWISE))
    if norm not in (NORMS[distribution], ELEMENTWISE):
        raise FglauditError(
            f"{distribution} noise hides distances in {NORMS[distribution]}, which a clip in another norm does not"
            f" bound; got norm: {norm}; use norm: {NORMS[distribution]} or {ELEMENTWISE}"
        )


def check_clip(clip: float) -> None:
    """Raise :class:`FglauditError` unless ``clip`` is positive and finite."""
    if not (clip > 0 and math.isfinite(clip)):
        raise FglauditError(f"clip must be positive; got {clip}; use e.g. clip: 1.0")


def clip_messages(values: Tensor, clip: float, norm: str = "l2") -> Tensor:
    """Return messages [P, ...] scaled down to a norm of at most ``clip``, or with every coordinate in [-clip, clip].

    What has no norm counts as zero, a message with NaN or infinity or a coordinate that is NaN: it would be visible
    through any noise, and a record can be chosen so that training overflows.
    """
    if norm == ELEMENTWISE:
        return values.nan_to_num(0.0, math.inf, -math.inf).clamp(-clip, clip)
    finite = values.flatten(1).isfinite().all(1).view(-1, *[1] * (values.dim() - 1))
    values = torch.where(finite, values, 0.0)
    length = torch.linalg.vector_norm(values.flatten(1), ord=_ORDERS[norm], dim=1).clamp(min=clip)
    factor: Tensor = clip / length
    return values * factor.view(-1, *[1] * (values.dim() - 1))


def clip_rows(rows: Tensor, clip: float, norm: str = "l2") -> Tensor:
    """Return feature rows [..., F], each scaled down to a norm of at most ``clip``."""
    return clip_messages(rows.reshape(-1, rows.shape[-1]), clip, norm).view_as(rows)


def draw(distribution: str, shape: torch.Size, rng: torch.Generator) -> Tensor:
    """Return noise of scale 1 in float64; Laplace as the difference of two exponentials."""
    if distribution == "gaussian":
        return torch.randn(shape, generator=rng, dtype=torch.float64)
    first, second = (torch.empty(shape, dtype=torch.float64).exponential_(generator=rng) for _ in range(2))
    return first - second
