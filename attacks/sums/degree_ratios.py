"""Degrees from the lengths of parallel parts: what the parts of a client tell of who has how many neighbours.

A node j without neighbours at its own client m is the only term of its own part there, ``x_j / D_j``, ``D = degree +
1``. A part of another node i at m that is parallel to it has j as its only term too, ``x_j / sqrt(D_i D_j)``. So i and
j are neighbours, and the squared ratio of the lengths is ``D_j / D_i``: in lowest terms p / q, and D_i is a multiple of
q, D_j one of p. Both are at least one more than the number of the other clients that send a part. The smallest degrees
with which all of that is so are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ALIKE = 1e-5
"""Largest difference between the entries of two parallel rows of length 1."""
_NEAR = 3e-6
"""Largest difference between the projections of parallel rows that stand next to one another."""
_RATIO = 4e-6
"""Relative error of a squared ratio of lengths of float32 rows."""
_DEEP = 12
_ROUNDS = 64
_ROWS_AT_ONCE = 2**14


@dataclass(frozen=True)
class Ratios:
    """Edges that parallel parts show.

    Attributes:
        nodes: i, whose part at another client it is [E].
        neighbors: j, the only term of it [E].
        above, below: ``D_j / D_i`` in lowest terms [E].
    """

    nodes: Tensor
    neighbors: Tensor
    above: Tensor
    below: Tensor


def parallel_parts(parties: Tensor, own: Tensor, parts: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices of parts of nodes held elsewhere, of parallel own parts at the same client, [E] each, and the
    ratio of their lengths [E].

    Args:
        parties: the client of every part [R].
        own: which of them are of a node that the client holds [R].
        parts: [R, F].
    """
    length = parts.double().norm(dim=1)
    direction = torch.randn(parts.shape[1], generator=rng, dtype=torch.double)
    blocks = torch.split(parts, _ROWS_AT_ONCE)
    along = torch.cat([block.double() @ direction for block in blocks]) / length.clamp(min=1e-300)
    there = (length > 0).nonzero().squeeze(1)
    order = there[along[there].argsort()]
    order = order[parties[order].argsort(stable=True)]
    new = torch.ones(len(order), dtype=torch.bool)
    new[1:] = (parties[order].diff() != 0) | (along[order].diff() > _NEAR)
    group = new.cumsum(0) - 1
    size = int(group[-1].item()) + 1 if len(group) else 0
    first = torch.full((size,), len(parts)).scatter_reduce(0, group[own[order]], order[own[order]], "amin")
    other = ~own[order]
    part, partner = order[other], first[group[other]]
    part, partner = part[partner < len(parts)], partner[partner < len(parts)]
    alike = torch.ones(len(part), dtype=torch.bool)
    for low in range(0, len(part), _ROWS_AT_ONCE):
        some = slice(low, low + _ROWS_AT_ONCE)
        units = [parts[index[some]].double() / length[index[some], None] for index in (part, partner)]
        alike[some] = (units[0] - units[1]).abs().amax(1) <= _ALIKE
    part, partner = part[alike], partner[alike]
    return part, partner, length[part] / length[partner]


def lowest_terms(ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole numbers whose quotient is ``ratio`` [E] up to its error, the first convergents that are."""
    rest = ratio.clone()
    above = [torch.zeros_like(ratio), torch.ones_like(ratio)]
    below = [torch.ones_like(ratio), torch.zeros_like(ratio)]
    done = torch.zeros_like(ratio, dtype=torch.bool)
    for _ in range(_DEEP):
        whole = (rest + _RATIO).floor()
        for terms in (above, below):
            terms[:] = terms[1], torch.where(done, terms[1], whole * terms[1] + terms[0])
        done |= (above[1] - ratio * below[1]).abs() <= _RATIO * above[1]
        rest = 1 / (rest - whole).clamp(min=1e-12)
    return above[1].round().long(), below[1].round().long()


def least_degrees(ratios: Ratios, least: Tensor, most: int) -> Tensor:
    """Return the smallest ``D`` [N] of at least ``least`` [N] that are multiples of what ``ratios`` say and stand in
    these ratios; ``least`` of those that would be above ``most``."""
    ends = torch.cat([ratios.nodes, ratios.neighbors])
    others = torch.cat([ratios.neighbors, ratios.nodes])
    factor = torch.cat([ratios.below, ratios.above])
    other_factor = torch.cat([ratios.above, ratios.below])
    degrees = least.clone()
    for _ in range(_ROUNDS):
        times = torch.maximum(-(-degrees[ends] // factor), -(-degrees[others] // other_factor))
        raised = degrees.scatter_reduce(0, ends, times * factor, "amax").clamp(max=most + 1)
        if torch.equal(raised, degrees):
            break
        degrees = raised
    return torch.where(degrees > most, least, degrees)
