"""Loopy belief propagation over bits and sums: posteriors of all bits from the equations, the noise and the prior.

A constraint says ``sum of coefficients x bits = target + noise``. Its message to one of its bits needs the distribution
of the sum of the others. Constraints of at most ``_ENUMERATED`` bits sum over all patterns. Longer ones run a
forward-backward pass over their terms with the partial sum as the state, on a grid finer than the noise (exact for
counts). Messages are log odds. Exact on trees; the graphs of boundary nodes and their remote neighbours are nearly
trees.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.attacks.sums.binary_system import BinarySystem

_ENUMERATED = 7
_MAX_GRID = 96
_CLAMP = 35.0
_SETTLED = 1e-3
_CELLS_AT_ONCE = 1 << 23
_CELLS_IN_ALL = 1 << 31
"""Work limit of one call; larger problems get fewer rounds, at least two."""


def bit_log_odds(
    system: BinarySystem, log_odds: Tensor, *, std: Tensor, rounds: int = 12, damping: float = 0.3
) -> Tensor:
    """Return the posterior log odds of a one for every variable [V].

    Args:
        log_odds: prior [V].
        std: standard deviation of each constraint's error [C]; where a constraint is not ``exact`` only a sum above the
            target counts against a pattern.
        rounds: most rounds of message passing.
        damping: share of the old message kept in every round.
    """
    sizes = torch.bincount(system.constraint, minlength=len(system.targets))
    order = system.constraint.argsort(stable=True)
    variable, weight = system.variable[order], system.coefficient[order]
    starts = sizes.cumsum(0) - sizes
    prior = log_odds.clamp(-_CLAMP, _CLAMP)
    back = torch.zeros(len(variable), dtype=torch.double, device=prior.device)
    total = prior
    batches = [(n, (sizes == n).nonzero().squeeze(1)) for n in torch.unique(sizes[sizes > 0]).tolist()]
    cells = {n: 2**n * n if n <= _ENUMERATED else 4 * n * _MAX_GRID for n, _ in batches}
    work = sum(cells[n] * len(chosen) for n, chosen in batches)
    for _ in range(max(2, min(rounds, _CELLS_IN_ALL // max(work, 1)))):
        forth = (total[variable] - back).clamp(-_CLAMP, _CLAMP)
        new = torch.empty_like(back)
        for n, chosen in batches:
            for part in torch.split(chosen, max(1, _CELLS_AT_ONCE // cells[n])):
                index = starts[part][:, None] + torch.arange(n, device=part.device)
                message = _enumerated if n <= _ENUMERATED else _forward_backward
                new[index] = message(forth[index], weight[index], system.targets[part], std[part], system.exact[part])
        new = damping * back + (1 - damping) * new.clamp(-_CLAMP, _CLAMP)
        settled = bool((new - back).abs().amax() < _SETTLED) if len(new) else True
        back = new
        total = prior.index_add(0, variable, back)
        if settled:
            break
    return total


def _log_likelihood(error: Tensor, std: Tensor, exact: Tensor) -> Tensor:
    """Gaussian log likelihood of ``error`` [B, ...] = sum - target, one-sided where not ``exact`` [B]."""
    error = torch.where(exact[:, None], error, error.clamp(min=0))
    return -0.5 * (error / std[:, None]) ** 2


def _enumerated(forth: Tensor, weight: Tensor, target: Tensor, std: Tensor, exact: Tensor) -> Tensor:
    """Return messages of B constraints to their n bits [B, n], summed over all patterns.

    Args:
        forth: log odds that the bits send [B, n].
        weight: coefficients [B, n].
        target, std, exact: of the constraints [B].
    """
    n = forth.shape[1]
    patterns = ((torch.arange(2**n, device=forth.device)[:, None] >> torch.arange(n, device=forth.device)) & 1).double()
    score = forth @ patterns.T + _log_likelihood(weight @ patterns.T - target[:, None], std, exact)
    chance = torch.softmax(score, dim=1)
    ones = chance @ patterns
    zeros = chance @ (1 - patterns)
    return (ones.clamp(min=1e-300) / zeros.clamp(min=1e-300)).log() - forth


def _forward_backward(forth: Tensor, weight: Tensor, target: Tensor, std: Tensor, exact: Tensor) -> Tensor:
    """Return messages of B constraints to their n bits [B, n], by a pass over partial sums on a grid.

    Args:
        forth: log odds that the bits send [B, n].
        weight: coefficients [B, n].
        target, std, exact: of the constraints [B].
    """
    batch, n = forth.shape
    device = forth.device
    reach = (torch.where(exact, target, torch.minimum(target, weight.sum(1))) + 4 * std).clamp(min=0)
    equal = (weight == weight[:, :1]).all(1)
    step = torch.where(equal, weight[:, 0], torch.maximum(std / 2, reach / (_MAX_GRID - 2)))
    step = torch.maximum(step, reach / (_MAX_GRID - 2))
    shift = (weight / step[:, None]).round().long()
    cells = int((reach / step).max().ceil().item()) + 2
    grid = torch.arange(cells, device=device)
    chance = torch.sigmoid(forth)
    spread = torch.where(equal, std, (std**2 + step**2 / 12).sqrt())
    later = _log_likelihood(grid * step[:, None] - target[:, None], spread, exact)
    later = (later - later.amax(1, keepdim=True)).exp()
    backward = [later]
    for i in range(n - 1, 0, -1):
        later = (1 - chance[:, i, None]) * later + chance[:, i, None] * _advance(later, shift[:, i], grid, 1)
        later = later / later.amax(1, keepdim=True).clamp(min=1e-300)
        backward.append(later)
    so_far = torch.zeros(batch, cells, dtype=torch.double, device=device)
    so_far[:, 0] = 1
    ones, zeros = torch.empty_like(forth), torch.empty_like(forth)
    for i in range(n):
        later = backward[n - 1 - i]
        ones[:, i] = (so_far * _advance(later, shift[:, i], grid, 1)).sum(1)
        zeros[:, i] = (so_far * later).sum(1)
        so_far = (1 - chance[:, i, None]) * so_far + chance[:, i, None] * _advance(so_far, shift[:, i], grid, -1)
    return (ones.clamp(min=1e-300) / zeros.clamp(min=1e-300)).log()


def _advance(states: Tensor, shift: Tensor, grid: Tensor, direction: int) -> Tensor:
    """Return ``states[b, s + direction x shift[b]]`` [B, cells], zero outside the grid."""
    index = grid + direction * shift[:, None]
    inside = (index >= 0) & (index < len(grid))
    return torch.where(inside, states.gather(1, index.clamp(0, len(grid) - 1)), 0.0)
