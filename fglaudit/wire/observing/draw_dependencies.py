"""Which random numbers is a number of noise made of? Some of those that are drawn are redrawn, and what changes tells.

Two numbers of noise that are made of the same random numbers may be independent (Box and Muller 1958). Where they share
one and either has another beside it, they hardly ever are: a sum along a ring, or a hash of a neighbour's draw with a
small draw of its own, can have every distribution that is stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.wire.observing.redrawn import Redrawn

LOOKS = 4
"""What is drawn anew may be what it was, by chance, to the precision of arithmetic, which is a thousandth of the noise
at most: so often, one number must seem to have nothing of its own before noise is accused."""
CALLS, _SHARE = 256, 1 / 5
"""Calls, and the share of all random numbers that is redrawn in each, which tell what every number of noise is made
of."""
_MOST = 5
"""Random numbers of which a number of noise is made, at most, so that these calls tell which."""
_CHANCES = 2
"""Calls in which it may seem unchanged, by chance, though one of those was redrawn."""
_TRIED, _SURE = 16, 32
"""Random numbers that are redrawn by themselves, and looks in all of which numbers must change with one: whether a pair
is rejected (Marsaglia and Bray 1964) changes what comes after it in some."""
_AT_ONCE = 2**24
"""Pairs of a random number and one of noise that are compared at once."""

Changed = Callable[[Tensor, int], Tensor]
"""Which numbers of noise [N] change when the chosen random numbers are redrawn, as in the look of that number."""


def partly_shared(changed: Changed, free: Tensor, rng: torch.Generator) -> bool:
    """Whether two numbers of noise share a random number, and one is made of one more that the other is not made of.

    Args:
        free: [M] which random numbers are redrawn; all others stay.
    """
    made, many = _made_of(changed, free, rng)
    count, size = len(free), len(made)
    told = torch.unique(made[made < count])
    for at in _some(told, rng) if bool(many.any()) else ():
        seen = _with(changed, at, count)
        if bool((seen & many).any() and (seen & ~many).any()):
            return True
    # Of the numbers that share a random number, the two whose sets of them are the farthest apart in any order of sets.
    kind = torch.unique(made, dim=0, return_inverse=True)[1] * size + torch.arange(size)
    each = kind.repeat_interleave(_MOST)
    lowest, highest = (
        torch.full((count + 1,), start).scatter_reduce(0, made.flatten(), each, way)[:count]
        for start, way in ((size**2, "amin"), (-1, "amax"))
    )
    shared = (lowest // size < highest // size).nonzero()[:, 0]
    return any(_sharing(changed, at, lowest[at] % size, highest[at] % size, made, count) for at in _some(shared, rng))


def _made_of(changed: Changed, free: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return of which random numbers every number of noise is made [N, _MOST], in order and padded with M, and which of
    them are made of more [N], so that it is not told of which."""
    chosen = (torch.rand(CALLS, len(free), generator=rng) < _SHARE) & free
    still = ~torch.stack([changed(part, look) for look, part in enumerate(chosen)])
    made: list[Tensor] = []
    places = torch.where(free, torch.arange(len(free)), len(free))
    step = max(1, _AT_ONCE // len(free))
    for low in range(0, still.shape[1], step):
        part = still[:, low : low + step]
        against = chosen.T.float() @ part.float()
        found = torch.where(against <= _CHANCES, places[:, None], len(free))
        found = torch.cat([found, torch.full((_MOST + 1, part.shape[1]), len(free))])
        made.append(found.topk(_MOST + 1, 0, largest=False).values.sort(0).values.T)
    told = torch.cat(made)
    many = told[:, _MOST] < len(free)
    return torch.where(many[:, None], len(free), told[:, :_MOST]), many


def _some(numbers: Tensor, rng: torch.Generator) -> Tensor:
    return numbers[torch.randperm(len(numbers), generator=rng)[:_TRIED]]


def _sharing(changed: Changed, at: Tensor, one: Tensor, other: Tensor, made: Tensor, count: int) -> bool:
    """Whether numbers ``one`` and ``other`` of noise share the random number ``at``, and one of both is made of another
    one, which never changes the other."""
    seen = _with(changed, at, count)
    if not bool(seen[one] & seen[other]):
        return False
    for mine, theirs in ((one, other), (other, one)):
        for beside in made[mine][(made[mine] < count) & ~torch.isin(made[mine], made[theirs])]:
            looks = [_one(changed, beside, count, look) for look in range(LOOKS)]
            if all(bool(seen[mine] & ~seen[theirs]) for seen in looks):
                return True
    return False


def _with(changed: Changed, at: Tensor, count: int) -> Tensor:
    """Return which numbers of noise change in every look when one of ``count`` random numbers is redrawn."""
    seen = _one(changed, at, count, 0)
    for look in range(1, _SURE):
        if not bool(seen.any()):
            break
        seen &= _one(changed, at, count, look)
    return seen


def _one(changed: Changed, at: Tensor, count: int, look: int) -> Tensor:
    return changed(torch.arange(count) == at, look)


def alone(plain: Redrawn, changed: Changed, size: int, look: int) -> Tensor:
    """Return pairs [n, 2] of a random number and one of ``size`` numbers of noise: of all that are drawn together, the
    noise changes with that one only.

    Halves are redrawn, by every digit of their places: what changes with one half only changes with one random number,
    whose place it tells.
    """
    found = [torch.zeros(0, 2, dtype=torch.long)]
    for start, end, bits in plain.drawn:
        if bits == 0:
            continue
        place = torch.arange(plain.count) - start
        drawn = (place >= 0) & (place < end - start)
        single, which = torch.ones(size, dtype=torch.bool), torch.zeros(size, dtype=torch.long)
        for digit in range(max(1, (end - start - 1).bit_length())):
            one = (place >> digit) & 1 == 1
            ones, zeros = changed(drawn & one, look), changed(drawn & ~one, look)
            single &= ones ^ zeros
            which += ones.long() << digit
            if not bool(single.any()):
                break
        if bits < math.inf:  # whole numbers that several are made of may be long seeds
            single &= torch.bincount(which[single], minlength=int(which.max()) + 1)[which] == 1
        found.append(torch.stack([start + which, torch.arange(size)], 1)[single])
    return torch.cat(found)


def give(plain: Redrawn, pairs: Tensor, owned: Tensor, owners: Tensor) -> None:
    """Give numbers of noise that are not ``owned`` [N] the first random number of theirs that is free, in place."""
    for start, end, _ in plain.drawn:
        drawn, number = pairs[(pairs[:, 0] >= start) & (pairs[:, 0] < end)].unbind(1)
        free = ~owned[number] & ~owners[drawn]
        first = torch.full((len(owners),), len(owned)).scatter_reduce_(0, drawn[free], number[free], "amin")
        owned[first[first < len(owned)]] = True
        owners |= first < len(owned)
