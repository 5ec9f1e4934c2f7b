"""Whether a residual is fresh noise of a stated distribution and scale: tests that hold at any sample size.

All bounds are finite-sample ones, so that no honest noise fails more often than its level says: chi-square tails by
Laurent and Massart (2000, lemma 1), the empirical distribution by Dvoretzky, Kiefer, Wolfowitz and Massart (1990), sums
of bounded terms by Hoeffding (1963) and Azuma (1967). What arithmetic may have added to an entry, its *slack*, widens
every bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from fglaudit.rng import derive

DROWNED = 1e-3
"""Share of the scale that arithmetic may add: beyond it parts of noise are not compared with one another."""
LEVEL = 1e-6
"""Probability that anything at all of an honest run fails."""
MOST_RANKED = 2**15
"""Values per comparison whose empirical distribution is taken; norms and sums are of all values."""
_MOST_SCORED = 2**18
"""Values per comparison of which more than sizes is asked."""
_MOST_KEPT = 4096
_MOST_HISTORIES = 256
_SIMULATED = 2**20
_EXACT_TAIL = 1000
"""Degrees of freedom up to which the lower tail of the chi-square distribution is taken itself, not its bound."""
_MOST_DIRECTIONS, _PER_DIRECTION = 2048, 3
"""Width of rows of which no direction may be bare, and how many times as many rows are looked at for that."""
_WIDE, _MOST_WIDE = 512, 4
"""Wider ones take a second each: so many looks at them in a run."""
_DISCRETE = 1.5
"""How many times as many numbers in single precision coincide as real ones do, at most."""
PEAK = {"gaussian": 0.4, "laplace": 0.5, "uniform": 0.5}
"""Largest density at scale 1."""


@dataclass
class Spending:
    """Shares ``LEVEL`` out over the tests of a run, however many there are: the k-th one gets ``LEVEL / (k (k + 1))``.

    Attributes:
        rng: picks values to rank; nothing of a run depends on it.
        last: scores [n] of earlier noise by what it was added to, to see that noise is not used twice.
        wide: looks at directions of wide rows so far.
    """

    tests: int = 0
    rng: torch.Generator = field(default_factory=lambda: derive(0, "observed"))
    last: dict[object, Tensor] = field(default_factory=dict)
    wide: int = 0

    def next(self) -> float:
        """Return ``-ln`` of the next test's level."""
        self.tests += 1
        return math.log(self.tests * (self.tests + 1) / LEVEL)


@dataclass(frozen=True)
class Shape:
    """A distribution to test against.

    Attributes:
        name: "gaussian", "laplace", "uniform" or "mixed".
        scale: as in ``fglaudit.facts.Additive``; of mixed noise the standard deviation.
        cdf: of the noise, on tensors.
        blur: largest error of ``cdf``.
    """

    name: str
    scale: float
    cdf: Callable[[Tensor], Tensor]
    blur: float = 0.0

    @staticmethod
    def of(parts: tuple[tuple[str, float], ...]) -> Shape | None:
        """Return the distribution of a sum of independent (distribution, scale), None if one of them is not known."""
        names = {name for name, _ in parts}
        if not names <= PEAK.keys():
            return None
        if names == {"gaussian"} or len(parts) == 1:
            name, scale = next(iter(names)), math.sqrt(sum(scale**2 for _, scale in parts))
            return Shape(name, scale, lambda r: _cdf(name, r / scale))
        ranked = _simulated(parts)
        blur = math.sqrt((math.log(2 / LEVEL) + 10) / (2 * _SIMULATED))
        return Shape("mixed", float(ranked.std()), lambda r: _ranks(ranked, r), blur)


@lru_cache(maxsize=4)  # many draws of one message have the same shape
def _simulated(parts: tuple[tuple[str, float], ...]) -> Tensor:
    drawn = sum((_draw(name) * scale for name, scale in parts), torch.zeros(_SIMULATED, dtype=torch.float64))
    return drawn.sort().values


def _ranks(ranked: Tensor, values: Tensor) -> Tensor:
    return torch.searchsorted(ranked.to(values.device), values.contiguous()).double() / len(ranked)


def _cdf(name: str, z: Tensor) -> Tensor:
    if name == "gaussian":
        found: Tensor = torch.special.ndtr(z)
        return found
    if name == "laplace":
        return 0.5 + 0.5 * z.sign() * -torch.expm1(-z.abs())
    return (0.5 + z / 2).clamp(0, 1)


def normal_scores(residual: Tensor, shape: Shape) -> Tensor:
    """Return numbers that are standard normal if the noise is what is stated."""
    if shape.name == "gaussian":
        return residual / shape.scale
    scores: Tensor = torch.special.ndtri(shape.cdf(residual).clamp(1e-12, 1 - 1e-12))
    return scores


def _draw(name: str) -> Tensor:
    rng = derive(0, "mixed noise", name)
    if name == "gaussian":
        return torch.randn(_SIMULATED, generator=rng, dtype=torch.float64)
    if name == "uniform":
        return 2 * torch.rand(_SIMULATED, generator=rng, dtype=torch.float64) - 1
    first, second = (torch.empty(_SIMULATED, dtype=torch.float64).exponential_(generator=rng) for _ in range(2))
    return first - second


def strange_noise(
    residual: Tensor,
    slack: Tensor,
    shape: Shape,
    values: Tensor,
    spending: Spending,
    key: object = None,
    previous: float | None = 0.0,
) -> str | None:
    """Return in words why ``residual`` is no fresh noise of ``shape``, or None.

    Args:
        residual, slack, values: [n, D] in float64; ``values`` are what the noise was added to.
        key: of what it was added to; noise is compared with the one of the last call with the same key. None: it is
            not.
        previous: stated correlation with it; None: any.
    """
    if residual.numel() == 0:
        return None
    if not bool(residual.isfinite().all()):
        return "not finite"
    sizes = strange_size(residual, slack, shape, spending) or unchanged(residual, slack, shape, spending)
    if sizes is not None or float((slack / shape.scale).mean()) > 0.3:  # arithmetic drowns the noise: size alone
        return sizes
    first = residual.flatten()[:_MOST_KEPT], slack.expand_as(residual).flatten()[:_MOST_KEPT], residual.shape
    bare = leaves_a_direction(residual, slack, shape, spending)
    if bare is None and residual.numel() > _MOST_SCORED:  # the rest is asked of a block of rows
        block = _block(residual, max(1, _MOST_SCORED // residual.shape[1]), spending)
        residual, values, slack = residual[block], values[block], slack.expand_as(residual)[block]
    score, shift = _scored(residual, slack, shape)
    return (
        bare
        or _coincides(residual, slack, shape, spending)
        or _strange_distribution(score, shift, shape, spending)
        or _strange_sums(score, shift, spending)
        or _depends(score, shift, values, spending)
        or _repeats(score, shift, spending)
        or _strange_history(first, shape, spending, key, previous)
    )


def _block(residual: Tensor, rows: int, spending: Spending) -> slice:
    """Return so many ``rows`` after one another, from a random one on."""
    low = int(torch.randint(max(1, len(residual) - rows + 1), (1,), generator=spending.rng))
    return slice(low, low + rows)


def _scored(residual: Tensor, slack: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """Return scores, uniform on [-1, 1] if the noise is what is stated, and how far slack may move each in the mean."""
    shift = 2 * PEAK.get(shape.name, 0.5) * (slack / shape.scale) + 2 * shape.blur
    return 2 * shape.cdf(residual) - 1, shift


def strange_size(residual: Tensor, slack: Tensor, shape: Shape, spending: Spending) -> str | None:
    """Compare the size of all, of every row and of every column with what it is a sum of."""
    if shape.name in ("mixed", "uniform"):
        far = residual.abs() > shape.scale + slack
        return "larger than uniform noise can be" if shape.name == "uniform" and bool(far.any()) else None
    power = 2 if shape.name == "gaussian" else 1
    sized, loose = residual.abs() / shape.scale, slack.expand_as(residual) / shape.scale
    for along, count in ((None, 1), (1, len(residual)), (0, residual.shape[1])):
        freedom = residual.numel() / count
        norm = torch.linalg.vector_norm(sized, power, dim=along)
        give = torch.linalg.vector_norm(loose, power, dim=along)
        # Of Gaussian noise the squared norm is chi-square; twice the L1 norm of Laplace noise is, of twice the freedom.
        high, low = (2 if power == 1 else 1) * (norm + give) ** power, (norm - give).clamp(min=0) ** power
        low, freedom = (2 * low, 2 * freedom) if power == 1 else (low, freedom)
        x = spending.next() + math.log(2 * count)
        if bool((low > freedom + 2 * math.sqrt(freedom * x) + 2 * x).any()):
            return f"noise larger than the stated scale {shape.scale:.4g} gives"
        few = high < freedom - 2 * math.sqrt(freedom * x)
        if freedom <= _EXACT_TAIL:
            few = torch.special.gammainc(torch.full_like(high, freedom / 2), high / 2) < math.exp(-x)
        if bool(few.any()):
            return f"noise smaller than the stated scale {shape.scale:.4g} gives"
    return None


def unchanged(residual: Tensor, slack: Tensor, shape: Shape, spending: Spending) -> str | None:
    """Count the entries that did not change at all, against as many as noise rounds off to nothing (Chernoff)."""
    count = int((residual.abs() <= slack).sum())
    chance = 2 * PEAK.get(shape.name, 0.5) * slack.expand_as(residual) / shape.scale
    mean = float(chance.clamp(max=1).sum())
    x = spending.next()
    if count > mean and count * math.log(count / max(mean, 1e-300)) - count + mean > x:
        return f"{count} entries without the stated noise"
    return None


def _coincides(residual: Tensor, slack: Tensor, shape: Shape, spending: Spending) -> str | None:
    """Noise in steps, whose last digits are the value's own, and noise that is used twice has sizes that are alike."""
    size, density = residual.abs().flatten(), 2 * PEAK.get(shape.name, 0.8) / shape.scale
    count = alike_sizes(size, float(slack.max()), _DISCRETE * density, spending)
    return f"noise in steps or used twice: {count} of {len(size)} sizes are alike" if count else None


def alike_sizes(sizes: Tensor, near: float, density: float, spending: Spending) -> int:
    """Count neighbours among ``sizes`` [n] that are alike to the precision ``near`` of arithmetic; 0 where they are no
    more than independent ones of this ``density`` at most have by chance."""
    pairs = len(sizes) * (len(sizes) - 1) / 2
    mean = pairs * 2 * near * density
    count = int((sizes.sort().values.diff() <= near).sum())
    x = 2 * spending.next()  # pairs share entries
    return count if count > mean and count * math.log(count / max(mean, 1e-300)) - count + mean > x else 0


def leaves_a_direction(residual: Tensor, slack: Tensor, shape: Shape, spending: Spending) -> str | None:
    """Compare the smallest singular value of Gaussian noise with its least likely one: what noise is orthogonal to
    comes through as it is. Of many rows by Davidson and Szarek (2001, theorem 2.13), of few by squares of them, each of
    which has a smallest singular value below c / sqrt(width) with probability c at most (Edelman 1988, section 5)."""
    x = spending.next()
    slack = slack.expand_as(residual)
    tall, loose = (residual, slack) if len(residual) >= residual.shape[1] else (residual.T, slack.T)
    width = tall.shape[1]
    if shape.name != "gaussian" or not 2 <= width <= _MOST_DIRECTIONS or len(tall) < 2 * width:
        return None
    spending.wide += width > _WIDE
    if width > _WIDE and spending.wide > _MOST_WIDE:
        return None
    block = _block(tall, max(_PER_DIRECTION * width, _MOST_SCORED // width), spending)
    tall, loose = tall[block], loose[block]
    squares = len(tall) // width
    least = math.sqrt(len(tall)) - math.sqrt(width) - math.sqrt(2 * x)
    if least > 0:
        least -= float(torch.linalg.vector_norm(loose)) / shape.scale
        smallest = torch.linalg.eigvalsh(tall.T @ tall).amin().clamp(min=0).sqrt()
    else:
        least = math.exp(-x / squares) / math.sqrt(width)
        smallest = torch.linalg.svdvals(tall[: squares * width].reshape(squares, width, width)).amin(1).amax()
    if float(smallest) / shape.scale < least:
        return "noise that leaves a direction of rows or columns alone"
    return None


def _strange_distribution(score: Tensor, shift: Tensor, shape: Shape, spending: Spending) -> str | None:
    flat, extra = score.flatten(), float(shift.mean())
    if len(flat) > MOST_RANKED:
        flat = flat[torch.randint(len(flat), (MOST_RANKED,), generator=spending.rng).to(flat.device)]
    count = len(flat)
    ranked = (flat.sort().values + 1) / 2
    steps = torch.arange(count + 1, dtype=torch.float64, device=ranked.device) / count
    gap = float(torch.maximum((ranked - steps[:-1]).max(), (steps[1:] - ranked).max()))
    if gap > math.sqrt((spending.next() + math.log(2)) / (2 * count)) + extra:
        return f"noise of another distribution than {shape.name} of scale {shape.scale:.4g}"
    return None


def _strange_sums(score: Tensor, shift: Tensor, spending: Spending) -> str | None:
    shift = shift.expand_as(score)
    for along, count in ((None, 1), (1, len(score)), (0, score.shape[1])):
        number = score.numel() / count
        x = spending.next() + math.log(2 * count)
        total = score.sum() if along is None else score.sum(along)
        give = shift.sum() if along is None else shift.sum(along)
        if bool((total.abs() > math.sqrt(2 * number * x) + give).any()):
            return "noise whose mean is not zero"
    return None


def _depends(score: Tensor, shift: Tensor, values: Tensor, spending: Spending) -> str | None:
    if not bool(values.isfinite().all()):
        return None
    size = values.abs()
    for terms, against in ((score, values - values.mean()), (2 * score.abs() - 1, size - size.mean())):
        x = spending.next() + math.log(2)
        bound = torch.linalg.vector_norm(against) * math.sqrt(2 * x) + 2 * (shift * against.abs()).sum()
        if bool((terms * against).sum().abs() > bound):
            return "noise that depends on the value"
    return None


def _repeats(score: Tensor, shift: Tensor, spending: Spending) -> str | None:
    give = 4 * float(shift.mean())
    for one, other in ((score[1:], score[:-1]), (score[:, 1:], score[:, :-1])):
        x = spending.next() + math.log(2)
        if float((one * other).sum().abs()) > math.sqrt(2 * one.numel() * x) + give * one.numel():
            return "noise that is not drawn afresh for every entry"
    return None


def _strange_history(
    first: tuple[Tensor, Tensor, torch.Size], shape: Shape, spending: Spending, key: object, previous: float | None
) -> str | None:
    if key is None or previous is None:
        return None
    kept, shift = (part.cpu() for part in _scored(first[0], first[1], shape))
    earlier = spending.last.pop((key, first[2]), None)
    spending.last[key, first[2]] = kept
    while len(spending.last) > _MOST_HISTORIES:
        del spending.last[next(iter(spending.last))]
    if earlier is None:
        return None
    x, give = spending.next() + math.log(2), 4 * float(shift.mean()) * len(kept)
    if previous == 0:
        if float((kept * earlier).sum().abs()) > math.sqrt(2 * len(kept) * x) + give:
            return "noise that was used before"
        return None
    if shape.name != "gaussian":
        return None
    now, then = (torch.special.ndtri(((s + 1) / 2).clamp(1e-12, 1 - 1e-12)) for s in (kept, earlier))
    size = float(torch.linalg.vector_norm(then))
    spread = math.sqrt(max(1 - previous**2, 1e-6))  # given the earlier noise, what is left is Gaussian
    if abs(float(((now - previous * then) * then).sum())) > spread * size * math.sqrt(2 * x) + 10 * give + 1e-6 * size:
        return f"noise whose correlation with the round before is not {previous:.3g}, as is stated"
    return None
