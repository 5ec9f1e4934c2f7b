"""Decode the entries of a weighted sum: which of the neighbours' bits can add up to this value?

Neighbours of equal degree have equal coefficients and form a group; only the number of ones in a group can be inferred.
All count vectors that reach a target within its tolerance are enumerated, for all constraints at once, group after
group in descending order of coefficients; branches that can no longer reach the target are pruned. A group whose count
is the same in every solution becomes a constraint of its own, with integer coefficients: that is a proof, not a guess.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.sums.bits.binary_system import BinarySystem

_MAX_BRANCHES = 4_000
"""Partial solutions kept per constraint; a constraint with more stays undecided."""
_MAX_FRONTIER = 4_000_000


@dataclass(frozen=True)
class _Groups:
    """Groups of equal coefficients within a constraint.

    Attributes:
        of_term: group of each term [T].
        constraint, coefficient, size: of each group [G].
    """

    of_term: Tensor
    constraint: Tensor
    coefficient: Tensor
    size: Tensor


def _groups(system: BinarySystem) -> tuple[BinarySystem, _Groups]:
    """Sort the terms by constraint and descending coefficient and return them with their groups."""
    by_size = system.coefficient.argsort(descending=True, stable=True)
    order = by_size[system.constraint[by_size].argsort(stable=True)]
    c, w = system.constraint[order], system.coefficient[order]
    new = torch.ones_like(c, dtype=torch.bool)
    new[1:] = (c[1:] != c[:-1]) | (w[1:] != w[:-1])
    of_term = new.cumsum(0) - 1
    sorted_system = dataclasses.replace(system, constraint=c, variable=system.variable[order], coefficient=w)
    return sorted_system, _Groups(of_term, c[new], w[new], torch.bincount(of_term))


def split_by_weight(system: BinarySystem) -> BinarySystem:
    """Replace every group whose count is certain by a constraint ``number of ones in the group = count``."""
    system, groups = _groups(system)
    per_constraint = torch.bincount(groups.constraint, minlength=len(system.targets))
    mixed = ((per_constraint > 1) & system.exact & system.fresh).nonzero().squeeze(1)
    low = torch.zeros_like(groups.size)
    high = groups.size.clone()
    alone = (per_constraint == 1)[groups.constraint] & system.exact[groups.constraint]
    count = (system.targets[groups.constraint] / groups.coefficient).round().long()
    missed = (system.targets[groups.constraint] - count * groups.coefficient).abs() > system.tolerance[
        groups.constraint
    ]
    possible = (count >= 0) & (count <= groups.size) & ~missed
    low = torch.where(alone, torch.where(possible, count, 1), low)
    high = torch.where(alone, torch.where(possible, count, 0), high)
    first = per_constraint.cumsum(0) - per_constraint
    # Constraints with equally many groups go together, the frontier bounded by taking them in slices.
    for number in torch.unique(per_constraint[mixed]).tolist():
        same = mixed[per_constraint[mixed] == number]
        for part in torch.split(same, max(1, _MAX_FRONTIER // (_MAX_BRANCHES // 4 if number > 8 else 256))):
            index = first[part][:, None] + torch.arange(number, device=part.device)
            low[index], high[index] = _count_range(
                groups.coefficient[index], groups.size[index], system.targets[part], system.tolerance[part]
            )
    contradictory = torch.zeros(len(system.targets), dtype=torch.bool, device=low.device)
    contradictory[groups.constraint[low > high]] = True
    return _drop(_refine(system, groups, low, high), contradictory)


def _count_range(weight: Tensor, size: Tensor, target: Tensor, tolerance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and greatest count of every group over all solutions, [B, G] each.

    Without any solution least exceeds greatest; with too many branches to enumerate, the bounds are 0 and the size.

    Args:
        weight, size: coefficients and sizes of the G groups of B constraints [B, G].
        target, tolerance: [B].
    """
    batch, number = weight.shape
    device = weight.device
    # What the groups after g can add at most.
    reach = torch.zeros(batch, number + 1, dtype=torch.double, device=device)
    reach[:, :-1] = (weight * size).flip(1).cumsum(1).flip(1)
    who = torch.arange(batch, device=device)
    rest = target.clone()
    counts = torch.zeros(batch, 0, dtype=torch.int16, device=device)
    undecided = torch.zeros(batch, dtype=torch.bool, device=device)
    for g in range(number):
        w, slack = weight[who, g], tolerance[who]
        most = torch.minimum(size[who, g], ((rest + slack) / w).floor().long())
        least = ((rest - slack - reach[who, g + 1]) / w).ceil().long().clamp(min=0)
        branches = (most - least + 1).clamp(min=0)
        undecided |= torch.zeros_like(undecided, dtype=torch.long).index_add_(0, who, branches) > _MAX_BRANCHES
        branches[undecided[who]] = 0
        parent = torch.repeat_interleave(torch.arange(len(who), device=device), branches)
        taken = torch.arange(len(parent), device=device) - (branches.cumsum(0) - branches)[parent] + least[parent]
        counts = torch.cat([counts[parent], taken[:, None].to(torch.int16)], dim=1)
        rest = rest[parent] - taken * w[parent]
        who = who[parent]
    low = torch.full((batch, number), 32767, dtype=torch.int16, device=device)
    high = torch.full((batch, number), -1, dtype=torch.int16, device=device)
    index = who[:, None].expand_as(counts)
    low = low.scatter_reduce(0, index, counts, "amin")
    high = high.scatter_reduce(0, index, counts, "amax")
    low, high = torch.where(undecided[:, None], 0, low.long()), torch.where(undecided[:, None], size, high.long())
    return low, high


def _drop(system: BinarySystem, contradictory: Tensor) -> BinarySystem:
    """Remove the first constraints where ``contradictory`` [n].

    No bits fit them, so a premise (scale, degree, no noise) is wrong there.
    """
    term = ~torch.nn.functional.pad(contradictory, (0, len(system.targets) - len(contradictory)))[system.constraint]
    return dataclasses.replace(
        system,
        constraint=system.constraint[term],
        variable=system.variable[term],
        coefficient=system.coefficient[term],
    )


def _refine(system: BinarySystem, groups: _Groups, low: Tensor, high: Tensor) -> BinarySystem:
    """Give every group with one possible count a constraint of its own and take it out of its old one."""
    certain = (low == high) & (groups.size > 0)
    count = len(system.targets)
    settled = torch.zeros_like(system.targets).index_add_(0, groups.constraint, certain * low * groups.coefficient)
    number = certain.cumsum(0) - 1 + count
    own = certain[groups.of_term]
    return dataclasses.replace(
        system,
        constraint=torch.where(own, number[groups.of_term], system.constraint),
        coefficient=torch.where(own, 1.0, system.coefficient),
        targets=torch.cat([system.targets - settled, low[certain].double()]),
        tolerance=torch.cat([system.tolerance, torch.full_like(system.targets[:1], 0.5).expand(int(certain.sum()))]),
        exact=torch.cat([system.exact, torch.ones_like(certain[certain])]),
        fresh=torch.cat([torch.zeros_like(system.fresh), torch.zeros_like(certain[certain])]),
    )
