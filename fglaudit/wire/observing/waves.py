"""Does the noise of a number follow from that of two others, whatever the rule?

The ranks u of independent numbers are uniform on [0, 1], so that products of cos 2 pi j u and sin 2 pi j u over two or
three different numbers have mean zero; bounds by Hoeffding (1963). A number whose rank is, say, the sum of two others'
modulo 1 is independent of each of them and of any linear combination, but not of their waves. Rules without waves of
low frequency, such as a hash of the digits, are beyond this.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.facts.residuals import PEAK, Shape, Spending

_FREQUENCIES = (1, 2)
_NUMBERS, _MOST_SAMPLES = 12, 8192
"""Numbers that stand together in a row or a column, and samples of them."""


def waves_together(draws: Tensor, loose: float, shape: Shape, spending: Spending) -> str | None:
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
    return None


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
