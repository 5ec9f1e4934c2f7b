"""Does the noise of a number follow from that of others?

The ranks u of independent numbers are uniform on [0, 1], so that products of cos 2 pi j u and sin 2 pi j u over two or
three different numbers have mean zero; bounds by Hoeffding (1963). A number whose rank is, say, the sum of two others'
modulo 1 is independent of each of them and of any linear combination, but not of their waves. Of any number of
neighbours ranks are added up, with one sign, with signs in turn or with another one of the first or the last, and signs
are multiplied: in the product of all waves from one number to another. Rules without waves of low frequency, such as a
hash of the digits, are beyond this.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.facts.residuals import PEAK, Shape, Spending

_FREQUENCIES = (1, 2)
_NUMBERS, _MOST_SAMPLES = 12, 8192
"""Numbers that stand together in a row or a column, and samples of them."""
_NEIGHBOURS, _MOST_ADDED = 512, 2048
"""The same where all from one to another are added up."""


def fourier_dependence(draws: Tensor, loose: float, shape: Shape, spending: Spending) -> str | None:
    """Return why numbers of ``draws`` [D, n, F] follow from others in their row or column, or None; ``loose``: what
    arithmetic may have added, in units of the scale."""
    for name, numbers in (("row", draws.flatten(0, 1)), ("column", draws.transpose(1, 2).flatten(0, 1))):
        low = int(torch.randint(max(1, numbers.shape[1] - _NUMBERS + 1), (1,), generator=spending.rng))
        numbers = numbers[:, low : low + _NUMBERS]
        if len(numbers) > _MOST_SAMPLES:
            chosen = torch.randperm(len(numbers), generator=spending.rng)[:_MOST_SAMPLES]
            numbers = numbers[chosen.to(numbers.device)]
        if _follows(shape.cdf(numbers), loose, shape, spending):
            return f"noise of numbers that follows from that of others in their {name}"
    across, down = draws, draws.transpose(1, 2)
    for numbers in (across.flatten(0, 1), down.flatten(0, 1), across.flatten(1), down.flatten(1)):
        if _adds_up(_some(numbers, spending), loose, shape, spending):
            return "noise of a number that follows from the sum of its neighbours' ranks, or the product of their signs"
    return None


def _some(numbers: Tensor, spending: Spending) -> Tensor:
    """Return some samples of neighbours among ``numbers`` [N, F]."""
    low = int(torch.randint(max(1, numbers.shape[1] - _NEIGHBOURS + 1), (1,), generator=spending.rng))
    chosen = torch.randperm(len(numbers), generator=spending.rng)[:_MOST_ADDED]
    return numbers[chosen.to(numbers.device), low : low + _NEIGHBOURS]


def _adds_up(numbers: Tensor, loose: float, shape: Shape, spending: Spending) -> bool:
    """Whether the product of all waves of some neighbours in ``numbers`` [N, F] is not zero in the mean: that of a to b
    is the one of all up to b over that of all before a."""
    samples, width = numbers.shape
    shift = 2 * math.pi * width * (PEAK.get(shape.name, 0.5) * loose + shape.blur)
    bound = 2 * math.sqrt((spending.next() + math.log(36 * width**2)) / samples) + shift + 1e-3
    if width < 2 or bound >= 0.9:  # an exact rule makes it 1
        return False
    angles = 2 * math.pi * shape.cdf(numbers)
    turns = torch.ones(width, dtype=angles.dtype, device=angles.device)
    turns[1::2] = -1
    for steps in (angles, angles * turns, math.pi * (numbers < 0)):
        upto = steps.cumsum(1)
        before = upto - steps
        # all from one to another with one sign, then with another sign of the last, and of the first
        for span in ((before, upto), (before, before - steps), (before + 2 * steps, upto)):
            one, other = (torch.polar(torch.ones_like(angle), angle).to(torch.complex64) for angle in span)
            if bool(((one.mH @ other / samples).abs().triu() > bound).any()):
                return True
    return False


def _follows(ranks: Tensor, loose: float, shape: Shape, spending: Spending) -> bool:
    """Whether waves of two or three columns of ``ranks`` [N, F] go together."""
    samples, numbers = ranks.shape
    if numbers < 2:
        return False
    waves = [f(2 * math.pi * j * ranks) for j in _FREQUENCIES for f in (torch.cos, torch.sin)]
    flat = torch.stack([*waves], 2).float().reshape(samples, -1)  # columns: of number 0, of number 1, ...
    each, kinds = len(waves), flat.shape[1]
    count = kinds**3 + kinds**2
    shift = 2 * math.pi * max(_FREQUENCIES) * (PEAK.get(shape.name, 0.5) * loose + shape.blur)
    bound = math.sqrt(2 * (spending.next() + math.log(2 * count)) / samples) + 3 * shift + 1e-4
    if bound >= 0.25:  # the waves of a sum modulo 1 go together by as much
        return False
    owner = torch.arange(kinds, device=flat.device) // each
    other = owner[:, None] != owner[None]
    if bool((((flat.T @ flat) / samples).abs()[other] > bound).any()):
        return True
    for number in range(numbers - 2):  # as the first of three
        rest = flat[:, (number + 1) * each :]
        others = owner[(number + 1) * each :]
        apart = others[:, None] != others[None]
        for wave in flat[:, number * each : (number + 1) * each].T:
            if bool(((((rest * wave[:, None]).T @ rest) / samples).abs()[apart] > bound).any()):
                return True
    return False
