"""Do two draws agree more than independent ones do? Of random answers, of the last bits of noise, and of whole draws.

Random answers (multi-bit reports, k-ary responses, unbiased rounding) may be alike by chance, and how often is stated:
more than that, and who knows the code can draw them again. The last bits of a number with noise are as good as thrown:
bits that come again under other noise are the value's own. And two draws of noise are never the same as a whole unless
they are drawn from few.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fglaudit.facts import K_ARY, Fact, Randomised, first
from fglaudit.facts.explaining import ROUNDOFF, Expected
from fglaudit.facts.residuals import Spending

_BITS = 6
"""Last bits that are looked at: a comparison with what is stated allows for as much roundoff."""
_SPREAD = 2.0**8
"""How many of the largest of these bits noise must span, to throw them all."""
_ODDS = 0.1
"""How much more often bits may be the same than those of other numbers: where noise cancels a value, the last bits of
the difference are 0, and how often depends on the value."""
_FIXED = 0.9
"""How often one bit of one number may be the same: two parts of noise, added in single precision, often leave it 0."""


def answers_alike(
    facts: Iterable[Fact], expected: Expected, one: Tensor, other: Tensor, spending: Spending
) -> str | None:
    """Return why ``one`` and ``other`` [P, D], drawn by two generators, are no independent answers, or None."""
    found: tuple[Tensor, Tensor] | None = None
    if expected.reports is not None:
        found = _reports(expected, one, other)
    elif expected.opaque == K_ARY:
        found = _responses(first(facts, Randomised), one, other)
    elif expected.grid is not None and expected.grid.stochastic and not expected.draws:
        found = _roundings(expected, one, other)
    if found is None or not more_often(*found, spending):
        return None
    return "answers that do not come from the run's generator alone: another one gives them again"


def more_often(alike: Tensor, chance: Tensor, spending: Spending) -> bool:
    """Whether events [n], independent or negatively associated, came more often than probabilities [n] allow
    (Hoeffding 1963, theorem 1)."""
    count = alike.numel()
    if count == 0:
        return False
    seen, mean = float(alike.double().mean()), float(chance.double().mean())
    if seen <= mean or mean <= 0:
        return seen > mean  # what cannot be has happened
    divergence = seen * math.log(seen / mean)
    if seen < 1:
        divergence += (1 - seen) * math.log((1 - seen) / (1 - mean))
    return count * divergence > spending.next()


def _reports(expected: Expected, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Features that both draws report alike. Which ones are reported is negatively associated."""
    stated = expected.reports
    assert stated is not None
    step, center = float(stated.get("step", 1.0)), float(stated.get("center", 0.0))
    first_, second = (((t - expected.offset) / expected.factor - center).div(step).round() for t in (one, other))
    low, high = float(stated["low"]), float(stated["high"])
    share = ((expected.values.clamp(low, high) - low) / (high - low)).nan_to_num(0.5)
    lie = 1 / (math.exp(float(stated["bit_epsilon"])) + 1)
    says_one = lie + share * (1 - 2 * lie)
    asked = float(stated["sampled_features"]) / one.shape[1]
    return (first_ == second) & (first_ != 0), asked**2 * (says_one**2 + (1 - says_one) ** 2)


def _responses(stated: Randomised | None, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor] | None:
    """Rows whose class is the same in both draws."""
    if stated is None:
        return None
    keep, classes = float(stated.parameter("keep")), one.shape[1]
    alike = one.argmax(1) == other.argmax(1)
    return alike, torch.full((len(one),), keep**2 + (1 - keep) ** 2 / max(1, classes - 1))


def _roundings(expected: Expected, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor] | None:
    """Values between two levels that both draws round alike."""
    grid = expected.grid
    assert grid is not None
    if grid.step is None:
        return None
    start = 0.0 if grid.start is None else grid.start
    place = torch.where(grid.step > 0, (expected.values - start) / torch.where(grid.step > 0, grid.step, 1), 0.0)
    part = place - place.floor()
    give = expected.roundoff * (place.abs() + 1)
    between = (part > give) & (part < 1 - give)
    part = part[between]
    return (one == other)[between], part**2 + (1 - part) ** 2


def bits_alike(one: Tensor, other: Tensor, scale: float, spending: Spending) -> str | None:
    """Return why the last bits of ``one`` and ``other``, the same values with noise of two generators of standard
    deviation about ``scale``, are not those of noise, or None."""
    if one.dtype is not torch.float32 or other.dtype is not torch.float32 or not scale > 0:
        return None
    spread = (one.abs() + other.abs()) * ROUNDOFF[torch.float32] * _SPREAD < scale
    first_, second = (t.contiguous().view(torch.int32)[spread] for t in (one, other))
    for bit in range(_BITS):
        ones, others = (first_ >> bit) & 1, (second >> bit) & 1
        share = float((ones + others).double().mean()) / 2
        chance = share**2 + (1 - share) ** 2 + _ODDS
        if more_often(ones == others, torch.full(ones.shape, chance), spending):
            return "last bits that other noise leaves as they are: they say something of the value"
    return None


def fixed_bits(draws: Sequence[Tensor], scale: float, offset: float, spending: Spending) -> str | None:
    """Return why some number of ``draws``, one message with ever new noise of standard deviation about ``scale``, has
    a last bit that is nearly always the same, or None (Chernoff's bound, for all numbers and bits).

    Args:
        offset: what is added after the noise. Where it cancels most of a number, the last bits of the sum are 0.
    """
    if draws[0].dtype is not torch.float32 or not scale > 0:
        return None
    seen = torch.stack([draw.reshape(-1) for draw in draws])
    spread = (2 * seen.abs() * ROUNDOFF[torch.float32] * _SPREAD < scale).all(0)
    seen = seen[:, spread]
    words, numbers = seen.view(torch.int32), max(1, seen.shape[1])
    summands = (seen - offset).abs().clamp(min=abs(offset))
    cancelled = (torch.frexp(summands).exponent - torch.frexp(seen).exponent).amax(0)
    for bit in range(_BITS):
        ones = ((words[:, cancelled <= bit] >> bit) & 1).double().mean(0)
        same = torch.maximum(ones, 1 - ones).clamp(min=_FIXED)
        divergence = torch.xlogy(same, same / _FIXED) + torch.xlogy(1 - same, (1 - same) / (1 - _FIXED))
        if bool((len(draws) * divergence > spending.next() + math.log(2 * numbers)).any()):
            return "a last bit that noise does not change: it says something of the value"
    return None


def drawn_twice(draws: Sequence[Tensor]) -> bool:
    """Whether two of several draws are the same as a whole."""
    return len({draw.detach().cpu().contiguous().numpy().tobytes() for draw in draws}) < len(draws)
