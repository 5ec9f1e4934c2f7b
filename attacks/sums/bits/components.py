"""Split open bits into independent groups and solve small groups exactly, by enumerating all patterns.

Two bits depend on each other only through a chain of shared constraints, so the open bits fall into connected
components, most of two or three bits. All patterns of a component that meet its constraints are weighted by the prior:
a bit on which all of them agree is proven, the others get exact marginals and the most probable pattern.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.sums.bits.binary_system import BinarySystem
from fglaudit.attacks.sums.bits.numbering import numbered
from fglaudit.graph import components

MAX_EXACT = 12
"""Components of up to this many bits are enumerated."""
_CELLS_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class Posterior:
    """Of every variable [V]: probability of a one, bit of the most probable joint pattern, and whether it is proven."""

    probability: Tensor
    bits: Tensor
    proven: Tensor


def component_labels(system: BinarySystem) -> Tensor:
    """Return the component number of every variable [V]; settled variables are alone."""
    variables, constraints = len(system.variables), len(system.targets)
    links = torch.stack([system.variable, system.constraint + variables])
    return components(links, variables + constraints)[:variables].to(system.bits.device)


def solve_small(system: BinarySystem, log_odds: Tensor) -> tuple[Posterior, Tensor]:
    """Solve the components of at most ``MAX_EXACT`` open bits.

    Args:
        system: propagated: only open bits have terms.
        log_odds: prior log odds of a one [V].

    Returns:
        the posterior, with settled bits as they are, and which variables remain unsolved [V].
    """
    opened = system.bits < 0
    labels = component_labels(system)
    size = torch.bincount(labels[opened], minlength=int(labels.max().item()) + 1 if len(labels) else 0)
    probability = torch.where(opened, torch.sigmoid(log_odds), system.bits.double())
    bits = torch.where(opened, (log_odds > 0).to(torch.int8), system.bits)
    proven = ~opened
    unsolved = opened & (size[labels] > MAX_EXACT)
    for n in torch.unique(size[(size > 0) & (size <= MAX_EXACT)]).tolist():
        chosen = size == n
        members = (opened & chosen[labels]).nonzero().squeeze(1)
        members = members[labels[members].argsort(stable=True)].reshape(-1, n)
        coefficient, target, tolerance, exact = _dense(system, labels, members)
        patterns = (torch.arange(2**n, device=bits.device)[:, None] >> torch.arange(n, device=bits.device)) & 1
        step = max(1, _CELLS_AT_ONCE // (2**n * coefficient.shape[1]))
        for part in torch.split(torch.arange(len(members), device=bits.device), step):
            sums = coefficient[part] @ patterns.T.double()  # [components, constraints, patterns]
            over = sums - target[part, :, None]
            wrong = (over > tolerance[part, :, None]) | (exact[part, :, None] & (over < -tolerance[part, :, None]))
            feasible = ~wrong.any(1)
            weight = (log_odds[members[part]] @ patterns.T.double()).masked_fill(~feasible, -torch.inf)
            solvable = feasible.any(1)
            chance = torch.softmax(torch.where(solvable[:, None], weight, 0.0), dim=1)
            here = members[part][solvable]
            marginal = (chance @ patterns.double())[solvable]
            count = feasible.sum(1, keepdim=True)
            ones = feasible.double() @ patterns.double()
            probability[here] = marginal
            bits[here] = patterns[weight.argmax(1)][solvable].to(torch.int8)
            proven[here] = ((ones == 0) | (ones == count))[solvable]
            unsolved[members[part][~solvable]] = True
    return Posterior(probability, bits, proven), unsolved


def _dense(system: BinarySystem, labels: Tensor, members: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the constraints of B components of n variables as padded dense blocks.

    Coefficients are [B, m, n]; targets, tolerances and exactness [B, m]. Padding demands nothing.
    """
    device = labels.device
    batch, n = members.shape
    slot = torch.full((len(labels),), -1, device=device)
    slot[members.reshape(-1)] = torch.arange(batch * n, device=device)
    term = (slot[system.variable] >= 0).nonzero().squeeze(1)
    block, position = slot[system.variable[term]] // n, slot[system.variable[term]] % n
    constraints, local = numbered(system.constraint[term], len(system.targets))
    owner = torch.zeros(len(constraints), dtype=torch.long, device=device)
    owner[local] = block
    order = owner.argsort(stable=True)
    counts = torch.bincount(owner, minlength=batch)
    width = max(1, int(counts.max().item()))
    row = torch.empty_like(owner)
    row[order] = torch.arange(len(order), device=device) - (counts.cumsum(0) - counts)[owner[order]]
    coefficient = torch.zeros(batch, width, n, dtype=torch.double, device=device)
    coefficient[block, row[local], position] = system.coefficient[term]
    target = torch.zeros(batch, width, dtype=torch.double, device=device)
    tolerance = torch.full((batch, width), torch.inf, dtype=torch.double, device=device)
    exact = torch.zeros(batch, width, dtype=torch.bool, device=device)
    target[owner, row] = system.targets[constraints]
    tolerance[owner, row] = system.tolerance[constraints]
    exact[owner, row] = system.exact[constraints]
    return coefficient, target, tolerance, exact
