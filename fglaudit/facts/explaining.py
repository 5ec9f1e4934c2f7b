"""What stated facts make of a value, and whether what really left can be that.

Facts are applied in their order to an :class:`Expected`: those that do not draw change its values; noise, rounding and
random reports are noted, and compared with what left by size and shape (:mod:`fglaudit.facts.residuals`). Arithmetic in
another precision or order is allowed for by a slack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fglaudit.facts.residuals import Shape, Spending, strange_noise

ROUNDOFF = {torch.float64: 2.0**-50, torch.float32: 2.0**-21, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""Relative error allowed for in one sum or product, by precision."""
_NORM_ROUNDOFF = 16.0
"""How many times that a value may be off that was scaled by a norm over many entries: all of them by one factor."""
_LEAST = 2.0**-148
"""How far a number next to nothing may be off: two steps of the smallest ones."""
_CUT_ROUNDOFF = 0.5
"""How many times that one entry may be off beside what all have in common: two units in the last place, one for each of
the two products in which a clip can be written."""


@dataclass(frozen=True)
class Grid:
    """Evenly spaced levels: of all entries, or of each message [P, 1].

    Attributes:
        start, step: one level and the distance of levels; None: the smallest value of each message as sent, and its
            range over ``levels - 1``.
        levels: how many there are at most; None: any number.
        stochastic: whether rounding is unbiased.
    """

    start: Tensor | None
    step: Tensor | None
    levels: int | None
    stochastic: bool


@dataclass(frozen=True)
class Expected:
    """What is known of a value after some facts.

    Attributes:
        values: [P, D] in float64, noise left out.
        slack: bound [P, D] (or broadcastable) on what arithmetic and rounding add.
        roundoff: relative error of the arithmetic.
        received: [P, D], what the senders last got of this payload; None if nothing.
        noise: (distribution, scale) of every noise added so far.
        factor, offset: of what was scaled after noise or reports: ``offset + factor x (values + noise)``.
        grid: on which the value lies now.
        masked: whether masks were added that cancel over the messages.
        reports: the parameters of the multi-bit reports that replace the values: sampled_features, bit_epsilon, low,
            high, and center and step of ``center + step x report``.
        whitening: undoes the correlation of the noise: its matrix and the axis ("messages" or "coordinates").
        spread: factor on the scale of the noise that its correlation over rounds makes.
        previous: correlation with the noise of the previous round; None: whatever it is.
        sampled: with what probability an entry of the leading axis is kept rather than zero.
        opaque: why anything at all may have left.
        judge: compares (values, what left) in that case, where a plugin's fact can.
        width: entries of the last axis.
        round: of training, counted from the first one that the facts are about.
        kept: (``values``, mask [P, D]): entries that no fact touched, which leave as they are, to the last bit, and the
            values of which that is so; other values make it void.
        cut: (``values``, n): every n entries were scaled by one factor.
    """

    values: Tensor
    slack: Tensor
    roundoff: float
    received: Tensor | None = None
    noise: tuple[tuple[str, float], ...] = ()
    factor: float = 1.0
    offset: float = 0.0
    grid: Grid | None = None
    masked: bool = False
    reports: dict[str, Any] | None = None
    whitening: tuple[Tensor, str] | None = None
    spread: float = 1.0
    previous: float | None = 0.0
    sampled: float = 1.0
    opaque: str = ""
    judge: Callable[[Tensor, Tensor], bool] | None = None
    width: int = 1
    round: int = 0
    kept: tuple[Tensor, Tensor] | None = None
    cut: tuple[Tensor, int] | None = None

    @staticmethod
    def of(before: Tensor, received: Tensor | None = None, round: int = 0) -> Expected:
        """Start from what entered the hook [P, ...]."""
        values = before.reshape(len(before), -1).double()
        roundoff = ROUNDOFF.get(before.dtype, 0.0)
        known = None if received is None else received.reshape(len(before), -1).to(values)
        slack = roundoff * values.abs() if known is None else roundoff * (values.abs() + known.abs())
        return Expected(values, slack, roundoff, known, width=before.shape[-1], round=round)

    def to_the_last_bit(self) -> Expected:
        """Return the same where what no fact touches must leave as it entered, not nearly so."""
        return replace(self, kept=(self.values, torch.ones_like(self.values, dtype=torch.bool)))

    @property
    def draws(self) -> bool:
        """Whether something random was done to it, so that its values are not what left."""
        return bool(self.noise) or self.reports is not None or bool(self.opaque) or self.masked or self.sampled < 1

    def clipped(self, norm: str, bound: float, *, by_row: bool, around: bool) -> Expected:
        """Scale down to a norm: of every message, or of every row of the last axis."""
        if self.draws or self.grid is not None:
            return replace(self, opaque="clipped after noise")
        start = self.received if around and self.received is not None else torch.zeros_like(self.values)
        change = self.values - start
        if norm == "elementwise":
            cut = change.nan_to_num(0.0, math.inf, -math.inf).clamp(-bound, bound)  # a clip of NaN is 0
            held = cut + start if around else cut  # -0 stays -0
            slack, kept = self.slack.nan_to_num(0, 0, 0), self._kept(held, change.abs() < bound, around)
            return replace(self, values=held, slack=slack, kept=kept, cut=None)
        parts = change.reshape(-1, self.width if by_row else change.shape[1])
        parts = torch.where(parts.isfinite().all(1, keepdim=True), parts, 0.0)  # a clip of what is not finite is 0
        length = torch.linalg.vector_norm(parts, ord=2 if norm == "L2" else 1, dim=1, keepdim=True)
        cut = (parts * (bound / length.clamp(min=bound))).view_as(change)
        short = (length <= bound * (1 - _NORM_ROUNDOFF * self.roundoff)) & change.view_as(parts).isfinite()
        held = start + cut if around else cut  # -0 stays -0
        loose = _NORM_ROUNDOFF * self.roundoff * cut.abs()
        return replace(
            self,
            values=held,
            slack=self.slack.nan_to_num(0, 0, 0) + loose,
            kept=self._kept(held, short.view_as(change), around),
            cut=None if around or self.cut is not None else (held, parts.shape[1]),
        )

    def _kept(self, values: Tensor, mask: Tensor, around: bool) -> tuple[Tensor, Tensor] | None:
        """Return what is still as it entered where ``mask`` is; a change to what was received is added up again."""
        if around or self.kept is None or self.kept[0] is not self.values:
            return None
        return values, self.kept[1] & mask

    def scaled(self, offset: float, factor: float) -> Expected:
        """Take ``offset + factor x value``."""
        if self.draws:
            return replace(self, factor=factor * self.factor, offset=offset + factor * self.offset)
        moved = replace(self, values=offset + factor * self.values, slack=abs(factor) * self.slack)
        moved = replace(moved, slack=moved.slack + self.roundoff * (moved.values.abs() + abs(offset)))
        if (grid := self.grid) is None:
            return moved
        if grid.step is None or grid.start is None:
            return replace(moved, grid=None)
        return replace(moved, grid=replace(grid, start=offset + factor * grid.start, step=abs(factor) * grid.step))

    def rounded(self, start: float | None, step: float | None, levels: int | None, stochastic: bool) -> Expected:
        """Round to a grid."""
        own = (step is None and self.values.numel() > 0 and not self.draws) or None
        low = self.values.amin(1, keepdim=True) if own else None
        if step is not None:
            steps: Tensor | None = self.values.new_tensor(step)
        else:
            steps = None if low is None else (self.values.amax(1, keepdim=True) - low) / ((levels or 2) - 1)
        center = low if start is None else self.values.new_tensor(start)
        grid = Grid(center, steps, levels, stochastic)
        width = steps if steps is not None else torch.zeros_like(self.slack)
        return replace(
            self,
            grid=grid,
            kept=None,
            cut=None,
            slack=self.slack + (width if stochastic else width / 2) / abs(self.factor),
        )

    def without_columns(self, ids: tuple[int, ...]) -> Expected:
        """Zero outside the columns ``ids`` of the last axis."""
        if self.draws:
            return replace(self, opaque="columns dropped after noise")
        kept = torch.zeros(self.width, dtype=torch.bool, device=self.values.device)
        kept[list(ids)] = True
        shaped = self.values.view(len(self.values), -1, self.width)
        held = torch.where(kept, shaped, 0.0).view_as(self.values)
        return replace(self, values=held, kept=self._kept(held, kept.expand_as(shaped).reshape(held.shape), False))


def unexplained(expected: Expected, after: Tensor, spending: Spending, key: object = None) -> str | None:
    """Return in words why ``after`` [P, ...] is not what was expected, or None.

    Args:
        key: of the payload field, see :func:`fglaudit.facts.residuals.strange_noise`.
    """
    if after.numel() == 0 or (expected.opaque and expected.judge is None):
        return None
    if expected.judge is not None:
        told = expected.judge(expected.values, after.reshape(len(after), -1).double())
        return None if told else "something else than the plugin's own fact says"
    sent = after.reshape(len(after), -1).double()
    if expected.grid is not None and (reason := _off_grid(expected.grid, sent)) is not None:
        return reason
    if expected.factor == 0:
        slack = expected.slack + expected.roundoff * sent.abs()
        return None if bool(((sent - expected.offset).abs() <= slack).all()) else "not the constant that is stated"
    sent, slack = _unscaled(expected, sent)
    if expected.reports is not None:
        return _strange_reports(expected, sent, slack, spending)
    residual = sent - expected.values
    residual = torch.where(sent == expected.values, 0.0, residual)  # also where both are infinite
    if expected.masked:
        over = residual.sum(0).abs() > slack.sum(0)
        return "masks that do not cancel in the sum over all senders" if bool(over.any()) else None
    if expected.sampled < 1:
        kept = sent.abs().amax(1) > 0
        residual = residual[kept]
        slack = slack[kept]
    if noise := _stated_noise(expected):
        return _strange_residual(expected, noise, residual, slack, spending, key)
    far = ~(residual.abs() <= slack) | _inexact(expected, sent)
    if bool(far.any()):
        return f"{int(far.sum())} of {far.numel()} values differ from what is stated, by up to {_most(residual):.3g}"
    if expected.grid is not None and expected.grid.stochastic and expected.grid.step is not None:
        return _biased(expected, expected.grid.step / abs(expected.factor), residual, spending)
    return None


def _inexact(expected: Expected, sent: Tensor) -> Tensor:
    """Return which entries say something in their last bits: of those that nothing touched, all must be as they were,
    the sign of a zero too; those that one factor scaled may differ from its product by two units in the last place,
    which copies with another memory must give again (:mod:`fglaudit.wire.observing.neighboring_session`)."""
    wrong, values = torch.zeros_like(sent, dtype=torch.bool), expected.values
    if expected.cut is not None and expected.cut[0] is values and values.numel():
        parts, whole = values.view(-1, expected.cut[1]), sent.reshape(-1, expected.cut[1])
        size = (parts * parts).sum(1, keepdim=True)
        factor = torch.where(size > 0, (parts * whole).sum(1, keepdim=True) / torch.where(size > 0, size, 1), 1.0)
        give = _CUT_ROUNDOFF * expected.roundoff * parts.abs() + _LEAST
        wrong |= ((whole - factor * parts).abs() > give).view_as(wrong)
    if expected.kept is not None and expected.kept[0] is values:
        other = (sent != values) & ~(sent.isnan() & values.isnan())
        if expected.cut is not None and expected.cut[0] is values and bool(other.any()):
            other &= ~_times_nearly_one(expected, sent)
        wrong = torch.where(expected.kept[1], other | (sent.signbit() != values.signbit()), wrong)
    return wrong


def _times_nearly_one(expected: Expected, sent: Tensor) -> Tensor:
    """Return the entries of parts that are, to the last bit, products with one number within a few units of 1: what
    ``clip / length`` is where both are equal, since it is computed as ``clip * (1 / length)``."""
    assert expected.cut is not None
    kind = next((dtype for dtype, roundoff in ROUNDOFF.items() if roundoff == expected.roundoff), torch.float64)
    parts, whole = (t.reshape(-1, expected.cut[1]).to(kind) for t in (expected.values, sent))
    found = torch.zeros(len(parts), 1, dtype=torch.bool, device=sent.device)
    for units in range(-4, 5):
        found |= (parts * (1 + units * torch.finfo(kind).eps / 2) == whole).all(1, keepdim=True)
    return found.expand(parts.shape).reshape(sent.shape)


def noise_in(expected: Expected, after: Tensor) -> tuple[Tensor, Tensor, Shape] | None:
    """Return what of ``after`` [P, ...] is noise [P, D], its slack [P, D] and its stated shape, before it was scaled;
    None where that cannot be told."""
    shape = Shape.of(_stated_noise(expected)) if _stated_noise(expected) else None
    if shape is None or expected.opaque or expected.reports is not None or expected.factor == 0:
        return None
    sent, slack = _unscaled(expected, after.reshape(len(after), -1).double())
    return sent - expected.values, slack, shape


def _unscaled(expected: Expected, sent: Tensor) -> tuple[Tensor, Tensor]:
    """Return what left [P, D] as it was before it was scaled, and what arithmetic may have added to it."""
    loose = expected.roundoff * (sent.abs() + abs(expected.offset)) / abs(expected.factor)
    return (sent - expected.offset) / expected.factor, (expected.slack + loose).expand_as(sent)


def _stated_noise(expected: Expected) -> tuple[tuple[str, float], ...]:
    return tuple((name, scale * expected.spread) for name, scale in expected.noise if scale * expected.spread > 0)


def _most(residual: Tensor) -> float:
    return float(residual.abs().nan_to_num(math.inf).max())


def _strange_residual(
    expected: Expected,
    noise: tuple[tuple[str, float], ...],
    residual: Tensor,
    slack: Tensor,
    spending: Spending,
    key: object,
) -> str | None:
    shape = Shape.of(noise)
    if shape is None:
        return None  # a distribution of which nothing is known here; an attack that models it vouches for it
    if expected.whitening is not None:
        matrix, axis = expected.whitening
        matrix = matrix.to(residual)
        if matrix.shape[0] != residual.shape[0 if axis == "messages" else 1]:
            return f"a correlation of {matrix.shape[0]} {axis} is stated, {tuple(residual.shape)} were sent"
        inverse, singular = torch.linalg.inv_ex(matrix)
        if bool(singular) or not bool(inverse.isfinite().all()):
            return "a correlation is stated that leaves a direction without noise"
        left = axis == "messages"
        residual = inverse @ residual if left else residual @ inverse.T
        slack = inverse.abs() @ slack if left else slack @ inverse.abs().T
    return strange_noise(residual, slack, shape, expected.values, spending, key, expected.previous)


def _off_grid(grid: Grid, sent: Tensor) -> str | None:
    low, high = sent.amin(1, keepdim=True), sent.amax(1, keepdim=True)
    start = low if grid.start is None else grid.start
    step = (high - low) / ((grid.levels or 2) - 1) if grid.step is None else grid.step
    size = ROUNDOFF[torch.float32] * (sent.abs() + start.abs() + (high - low).abs())
    offset = sent - start
    distance = torch.where(step > 0, offset - step * torch.round(offset / torch.where(step > 0, step, 1)), offset)
    if bool((distance.abs() > size).any()):
        return "values that are not on the stated grid"
    wide = (high - low) > ((grid.levels or math.inf) - 1) * step + 2 * size.amax(1, keepdim=True)
    return f"more than the {grid.levels} stated levels" if bool(wide.any()) else None


def _biased(expected: Expected, step: Tensor, residual: Tensor, spending: Spending) -> str | None:
    """Compare the errors of unbiased rounding, one of two values a step apart, with a mean of zero whatever was
    rounded."""
    grid = expected.grid
    assert grid is not None
    error = torch.where(step > 0, residual / torch.where(step > 0, step, 1), 0.0)
    start = 0.0 if grid.start is None else grid.start
    place = torch.where(step > 0, (expected.values - start) / torch.where(step > 0, step, 1), 0.0)
    part = place - place.floor()
    give = expected.roundoff * (place.abs() + 1)
    between = ((part > give) & (part < 1 - give)).to(part)  # a level itself stays
    for weight in (between, (part - 0.5) * between):
        size = torch.linalg.vector_norm(weight)
        bound = size * math.sqrt((spending.next() + math.log(2)) / 2) + (give * weight.abs()).sum()
        if bool((error * weight).sum().abs() > bound):
            return "rounding that is not unbiased, as is stated"
    return None


def _strange_reports(expected: Expected, sent: Tensor, slack: Tensor, spending: Spending) -> str | None:
    """Compare multi-bit reports with the probabilities that are stated of them."""
    stated = expected.reports
    assert stated is not None
    size = float(stated.get("step", 1.0))
    sent, slack = (sent - float(stated.get("center", 0.0))) / size, slack / abs(size)
    reports = sent.round()
    if bool(((sent - reports).abs() > slack + 1e-4).any()) or bool((reports.abs() > 1).any()):
        return "multi-bit reports other than -1, 0 and 1"
    chosen = reports != 0
    width, sampled = sent.shape[1], int(stated["sampled_features"])
    if bool((chosen.sum(1) != sampled).any()):
        return f"multi-bit reports of another number of features than {sampled}"
    low, high = float(stated["low"]), float(stated["high"])
    share = ((expected.values.clamp(low, high) - low) / (high - low)).nan_to_num(0.5)
    lie = 1 / (math.exp(float(stated["bit_epsilon"])) + 1)
    mean = 2 * (lie + share * (1 - 2 * lie)) - 1
    error = torch.where(chosen, reports - mean, 0.0)  # one of two values 2 apart, mean zero whatever was chosen
    drawn = chosen.double() - sampled / width  # negatively associated: Hoeffding, for either sign of the weights alone
    for terms, reach, weight in (
        (error, 2.0, torch.ones_like(mean)),
        (error, 2.0, mean),
        (drawn, 1.5, share - share.mean(1, keepdim=True)),
    ):
        weight = torch.where(chosen, weight, 0.0) if reach == 2.0 else weight
        bound = reach * torch.linalg.vector_norm(weight) * math.sqrt((spending.next() + math.log(2)) / 2)
        if bool((terms * weight).sum().abs() > bound + 1e-6 * weight.abs().sum()):
            return "multi-bit reports of other probabilities than are stated"
    return None


def plausible_reports(before: Tensor, after: Tensor, *, keep: float) -> bool:
    """Whether one-hot rows ``after`` [P, C] can be k-ary responses to those ``before`` [P, C]: each is kept with
    probability ``keep``, otherwise all others are equally likely. Tested at level 1e-6 by Hoeffding's bound."""
    classes = after.shape[1]
    if bool(((after != 0) & (after != 1)).any()) or bool((after.sum(1) != 1).any()):
        return False
    shift = (after.argmax(1) - before.argmax(1)) % classes
    seen = torch.bincount(shift, minlength=classes).double()
    chance = torch.full_like(seen, (1 - keep) / max(1, classes - 1))
    chance[0] = keep
    reach = math.sqrt(len(after) * math.log(2 * classes / 1e-6) / 2)
    return bool(((seen - len(after) * chance).abs() <= reach).all())
