"""Which random numbers are a number of noise's own? Halves of those that are drawn are redrawn, and what changes tells.

What two numbers of noise have in common need not connect them (Box and Muller 1958); what one has in common with
several others, each of which has it alone, does.
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
_HALVES = 8
"""Times that all numbers of noise are parted in halves, one of which must not change with what the other is made of."""

Changed = Callable[[Tensor, int], Tensor]
"""Which numbers of noise [N] change when the chosen random numbers are redrawn, as in the look of that number."""


def partly_others(
    changed: Changed,
    again: Callable[[int], Tensor],
    looks: list[Tensor],
    count: int,
    size: int,
    rng: torch.Generator,
) -> bool:
    """Whether some of ``size`` numbers of noise changes with random numbers of several others, in every look.

    Two that share a random number may be independent (Box and Muller 1958): what may be one's own is never redrawn, and
    one other random number is not enough.

    Args:
        again: tells :func:`alone` of another look.
        looks: what it told of the first ones.
        count: of random numbers.
    """
    while True:
        pairs, seen = torch.unique(torch.cat(looks), dim=0, return_counts=True)
        if not _parted(changed, pairs, seen == len(looks), count, size, rng):
            return False
        if len(looks) >= LOOKS:
            return True
        looks = [*looks, again(len(looks))]


def _parted(
    changed: Changed,
    pairs: Tensor,
    sure: Tensor,
    count: int,
    size: int,
    rng: torch.Generator,
) -> bool:
    """Whether, of all numbers of noise, some half changes with several random numbers that the other half is made of.

    Args:
        pairs: [n, 2] random numbers, and numbers of noise that they may be of.
        sure: [n] whether they are.
    """
    for _ in range(_HALVES if bool(sure.any()) else 0):
        kept = torch.rand(size, generator=rng) < 0.5
        mine = kept[pairs[:, 1]]
        others = torch.zeros(count, dtype=torch.bool)
        others[pairs[sure & ~mine, 0]] = True
        others[pairs[mine, 0]] = False
        part = torch.rand(count, generator=rng) < 0.5
        if bool((kept & changed(others & part, 0) & changed(others & ~part, 0)).any()):
            return True
    return False


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
