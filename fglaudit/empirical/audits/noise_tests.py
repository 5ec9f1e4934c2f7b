"""Is noise as it is stated? Tests on residuals that are made standard normal by the stated distribution.

Of ``z`` [G, T, S, D] (generators, releases, senders, numbers) every entry is an independent standard normal number if
the noise is as stated, so every statistic here has a known distribution:

* sums of squares (chi-squared): too small, altogether or in some release, sender or number;
* the largest entry, the fourth moment, and Kolmogorov's distance: another shape, or cut tails;
* numbers that coincide: noise in steps;
* correlation of two slices, of values, of magnitudes and of ranks (Student's t, exact for two normal samples);
* sums over an axis (chi-squared): a small part in common, or parts that cancel;
* two slices with the same numbers in another order, or under a rotation.

Every test gives p-values that are at most uniform; those of one family are corrected for their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from scipy.special import log_ndtr
from torch import Tensor

from fglaudit.wire.observing.rotated_noise import alike

AXES = ("generators", "releases", "senders", "numbers")
SLICES = 40
"""Slices along an axis that are compared with one another."""
SHAPE_SAMPLE = 200_000
SAME = 1e-4
"""Two sorted slices nearer than this everywhere hold the same numbers."""
LONGEST_SORTED = 4000
DRAWS = 128
"""Draws of two slices whose inner products are compared: more cost more than they tell."""
NEAR = 1e-6
LATTICE_SAMPLE = 20_000
"""Numbers that are looked at for steps."""
LARGEST_SEEN = 5.0
"""Standard deviations up to which numbers are counted on in what is said of their resolution."""
_SMALL = 0.5
_ROUNDED = 6.0
"""Least step that is looked for, in roundings of the numbers that were seen."""
_LONGEST_GAP, _GAPS, _FEWEST_GAPS = 1e-4, 1500, 300


@dataclass(frozen=True)
class Found:
    """One test.

    Attributes:
        p: p-value.
        words: what would be wrong.
    """

    p: float
    words: str


def standardised(residual: Tensor, distribution: str, scale: float) -> Tensor | None:
    """Return noise as standard normal numbers, None for a distribution that is not known here."""
    value = residual.double() / scale
    if distribution == "gaussian":
        return value
    if distribution == "laplace":
        tail = np.log(0.5) - value.abs().numpy()  # log of P[beyond |value|]
        return _from_log_tail(tail, value)
    if distribution == "laplace-difference":  # of two, each of scale 1: P[beyond x] = (2 + x) e^-x / 4
        size = value.abs()
        return _from_log_tail((torch.log((2 + size) / 4) - size).numpy(), value)
    if distribution == "uniform":
        inside = (0.5 - value.abs() / 2).clamp(min=1e-300)
        return _from_log_tail(inside.log().numpy(), value)
    return None


def _from_log_tail(log_tail: np.ndarray, value: Tensor) -> Tensor:
    size = -stats.norm.ppf(np.maximum(np.exp(log_tail), 1e-300))
    return torch.from_numpy(np.sign(value.numpy()) * np.maximum(size, 0.0))


def too_small(z: Tensor) -> Iterator[Found]:
    """Yield whether some part of the noise is too small."""
    squares = z.square()
    yield Found(_lower(float(squares.sum()), z.numel()), f"noise is {_root(squares)} times as large as stated")
    for axis in (1, 2, 3):
        others = [other for other in range(4) if other != axis]
        sums, count = squares.sum(others), z.numel() // z.shape[axis]
        yield from _worst_group(sums.flatten(), count, f"in some of the {AXES[axis]}")
    if z.shape[1] > 1 and z.shape[2] > 1:
        yield from _worst_group(
            squares.sum((0, 3)).flatten(), z.shape[0] * z.shape[3], "of some senders in some releases"
        )


def _worst_group(sums: Tensor, count: int, where: str) -> Iterator[Found]:
    if len(sums) < 2 or count < 4:
        return
    p = stats.chi2.cdf(sums.numpy(), count) * len(sums)
    worst = int(p.argmin())
    size = math.sqrt(float(sums[worst]) / count)
    yield Found(min(1.0, float(p[worst])), f"noise {where} is {size:.3g} times as large as stated")


def _lower(total: float, count: int) -> float:
    return float(stats.chi2.cdf(total, count))


def _root(squares: Tensor) -> str:
    return f"{math.sqrt(float(squares.mean())):.3g}"


def wrong_shape(z: Tensor) -> Iterator[Found]:
    """Yield whether tails are cut, or the shape is another one."""
    flat = z.flatten()
    yield cut_tails(flat)
    step = max(1, len(flat) // SHAPE_SAMPLE)
    if larger(z):
        # With independent noise beside what is stated every size is exceeded at least as often (Anderson 1955).
        p = float(stats.kstest(flat[::step].abs().numpy(), "halfnorm", alternative="greater", method="asymp").pvalue)
        yield Found(p, "noise is smaller than stated more often than stated")
        return
    yield light_tails(flat)
    p = float(stats.kstest(flat[::step].numpy(), "norm", method="asymp").pvalue)
    yield Found(p, "noise has another distribution than stated")


def cut_tails(z: Tensor) -> Found:
    """Return whether the largest of ``z`` [n] is too small: P[no entry beyond it] = (1 - 2 P[above it]) ^ n."""
    largest = float(z.abs().max())
    log_p = len(z) * math.log1p(-2 * math.exp(float(log_ndtr(-largest)))) if largest > 0 else -math.inf
    return Found(math.exp(max(log_p, -700.0)), f"no noise beyond {largest:.3g} standard deviations, its tails are cut")


def larger(z: Tensor) -> bool:
    """Return whether noise certainly has more variance than stated, which breaks nothing: how it is distributed, and
    whether sizes depend on one another, is then another thing than stated, and no fault."""
    return float(stats.chi2.sf(float(z.square().sum()), z.numel())) < 1e-4


def signs_of(z: Tensor, rng: torch.Generator) -> Tensor:
    """Return ``z`` with sizes drawn afresh: of independent symmetric noise of any sizes, standard normal numbers."""
    sizes = torch.randn(z.shape, generator=rng, dtype=z.dtype).abs()
    return torch.where(z < 0, -sizes, sizes)


def light_tails(z: Tensor) -> Found:
    """Return whether the fourth moment of ``z`` [n] is too small, as that of a sum of a few uniform numbers is: it has
    an end, beyond which no delta is stated.

    ``z^4 - 6 z^2 + 3`` has mean 0 and variance 24 and is at least -6, so the p-value is Bernstein's bound.
    """
    squares = z.square()
    low = -float((squares.square() - 6 * squares + 3).mean())
    p = math.exp(-z.numel() * low * low / (2 * (24 + 2 * low))) if low > 0 else 1.0
    return Found(p, f"noise has lighter tails than stated: its fourth moment is {3 - low:.3g} where 3 is stated")


def in_steps(z: Tensor, resolution: float) -> Found:
    """Return whether numbers coincide more often than continuous ones do: noise in steps leaves over what it hides.

    Of n normal numbers ``n^2 / (2 sqrt(pi))`` times ``near`` pairs are nearer than ``near`` (Poisson, for small ones).

    Args:
        resolution: of the numbers as they were seen.
    """
    near = max(NEAR, 16 * resolution)
    values = z.flatten()[:LATTICE_SAMPLE].sort().values
    seen = int((values.diff() < near).sum().item())
    expected = len(values) ** 2 * near / (2 * math.sqrt(math.pi))
    if expected > len(values) / 10:
        return Found(1.0, "numbers are too coarse to see steps in noise")
    words = f"{seen} numbers coincide: noise comes in steps, or the same again"
    return Found(float(stats.poisson.sf(seen - 1, expected)), words)


def in_fine_steps(z: Tensor, resolution: float) -> Found:
    """Return whether gaps between neighbours are whole multiples of one step that is too fine to make numbers coincide,
    and coarser than single precision: what is left over by it is the value's own.

    Of continuous noise a gap's phase in a step is random, so the mean cosine of ``n`` of them is near 0 (Hoeffding, for
    every step that is tried; neighbouring gaps are nearly independent, so half of them count). Small numbers alone are
    looked at: they are seen more finely.

    Args:
        resolution: of the numbers as they were seen, the largest ones.
    """
    finest = _ROUNDED * max(resolution - (LARGEST_SEEN - _SMALL) * 2.0**-23, 2.0**-24)
    values = z.flatten()
    values = values[values.abs() < _SMALL][:LATTICE_SAMPLE].sort().values
    gaps = values.diff()
    gaps = gaps[(gaps > 0) & (gaps < _LONGEST_GAP)][:_GAPS]
    # Of longer steps phases are not random; a grid has the period of half of its step too.
    coarsest = min(max(NEAR, 16 * resolution), 0.2 * float(gaps.mean())) if len(gaps) >= _FEWEST_GAPS else 0.0
    if 2 * finest >= coarsest:
        return Found(1.0, "numbers are too coarse to see fine steps in noise")
    # A step that is off by this share is off by a tenth of itself at the longest gap.
    tried = math.ceil(math.log(coarsest / finest) / (0.1 * finest / _LONGEST_GAP))
    steps = finest * (coarsest / finest) ** (torch.arange(tried, dtype=torch.float64) / tried)
    means = torch.cat([(2 * math.pi * gaps / part[:, None]).cos().mean(1) for part in torch.split(steps, 512)])
    best = int(means.argmax())
    p = min(1.0, tried * math.exp(-len(gaps) * max(0.0, float(means[best])) ** 2 / 4))
    return Found(p, f"noise comes in steps of {float(steps[best]):.2g} of its scale, coarser than the numbers sent")


def along(z: Tensor, axis: int) -> Iterator[Found]:
    """Yield whether slices along ``axis`` depend on one another."""
    length, name = z.shape[axis], AXES[axis]
    if length < 2:
        return
    slices = z.movedim(axis, 0).reshape(length, -1)
    count = slices.shape[1]
    total = slices.sum(0).square().sum().item() / length
    p = 2 * min(float(stats.chi2.cdf(total, count)), float(stats.chi2.sf(total, count)))
    yield Found(min(1.0, p), f"noise has a part in common over {name}, or cancels over them")
    if count < 8:
        return
    chosen = slices[torch.linspace(0, length - 1, min(length, SLICES)).round().long()]
    magnitudes = torch.special.ndtri((torch.special.erf(chosen.abs() / math.sqrt(2))).clamp(1e-12, 1 - 1e-12))
    compared = [("", chosen), ("the size of ", magnitudes)]
    if count >= 50:  # fewer ranks tell little
        compared.append(("the rank of ", _ranks(chosen)))
    for of, values in compared:
        yield Found(_correlated(values), f"{of}noise in one of the {name} predicts another one's")
    if 8 <= count <= LONGEST_SORTED and length >= 2:
        sorted_ = chosen.abs().sort(1).values
        near = (sorted_[1:, None] - sorted_[None, :-1]).abs().amax(2) if len(sorted_) * count < 40_000 else None
        gaps = near[torch.ones_like(near).tril().bool()] if near is not None else _neighbors(sorted_)
        same = bool((gaps < SAME).any())
        yield Found(1e-12 if same else 1.0, f"the same numbers are used again in another of the {name}")


def _neighbors(sorted_: Tensor) -> Tensor:
    return (sorted_[1:] - sorted_[:-1]).abs().amax(1)


def _ranks(slices: Tensor) -> Tensor:
    ranks = slices.argsort(1).argsort(1).double()
    scored: Tensor = torch.special.ndtri((ranks + 0.5) / slices.shape[1])
    return scored


def _correlated(slices: Tensor) -> float:
    """Return the p-value of the largest correlation between two of ``slices`` [L, n]."""
    length, count = slices.shape
    norm = slices.norm(dim=1, keepdim=True)
    if bool((norm == 0).any()):
        return 1.0  # found out as too small
    unit = slices / norm
    r = (unit @ unit.T)[torch.ones(length, length).triu(1).bool()].abs().max().item()
    return min(1.0, _p_of_correlation(r, count) * length * (length - 1) / 2)


def _p_of_correlation(r: float, count: int) -> float:
    """Return the two-sided p-value of a correlation around 0 of ``count`` pairs of normal numbers."""
    r = min(r, 1 - 1e-15)
    return float(2 * stats.t.sf(r * math.sqrt((count - 1) / (1 - r * r)), count - 1))


def turned(z: Tensor) -> Iterator[Found]:
    """Yield whether a release, or a sender, has another one's noise under a rotation: of all its numbers, of those of
    every sender, or of every release."""
    generators, releases, senders, _ = z.shape
    words = "noise in one of the {} is another one's, turned"
    for axis, count, blocks in (
        (1, releases, z.movedim(1, 0).reshape(releases, generators, -1)),
        (1, releases, z.movedim(1, 0).flatten(1, 2)),
        (2, senders, z.movedim(2, 0).flatten(1, 2)),
    ):
        if count > 1 and blocks.shape[1] > 1:
            blocks = blocks[torch.linspace(0, count - 1, min(count, SLICES)).round().long(), :DRAWS]
            found = alike(blocks, blocks)
            found.fill_diagonal_(0)
            yield Found(_p(found), words.format(AXES[axis]))


def _p(found: Tensor) -> float:
    """Return the p-value of the most alike of pairs [B, C]."""
    return min(1.0, found.numel() * math.exp(-float(found.max())))


def across(first: Tensor, second: Tensor, names: tuple[str, str]) -> Iterator[Found]:
    """Yield whether the noise of two mechanisms of one run depends on one another: ``z`` of both [G, T, S, D]."""
    count = min(first.shape[0], second.shape[0]), min(first.shape[1], second.shape[1])
    pairs = [each[: count[0], : count[1]].flatten(2) for each in (first, second)]
    width = min(pair.shape[2] for pair in pairs)
    one, other = (pair[..., :width].flatten() for pair in pairs)
    if len(one) < 8:
        return
    words = f"noise on {names[0]} predicts noise on {names[1]}"
    yield Found(_correlated(torch.stack([one, other])), words)
    if count[0] > 1:
        whole, more = (pair.movedim(1, 0)[: SLICES // 2] for pair in pairs)  # a block a release
        yield Found(_p(alike(whole, more)), f"noise on {names[0]} is noise on {names[1]}, turned")
