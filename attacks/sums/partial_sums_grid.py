"""Messages of one constraint size by a forward-backward pass over the terms, with the partial sum as the state.

The grid of partial sums is finer than the noise, and exact where all coefficients are equal (counts). Sums above what
the target allows fall off it.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_GRID = 96


def grid_messages(forth: Tensor, weight: Tensor, target: Tensor, std: Tensor, exact: Tensor) -> Tensor:
    """Return messages of B constraints to their n bits [B, n].

    Args:
        forth: log odds that the bits send [B, n].
        weight: coefficients [B, n].
        target, std, exact: of the constraints [B].
    """
    device, (batch, n) = forth.device, forth.shape
    reach = (torch.where(exact, target, torch.minimum(target, weight.sum(1))) + 4 * std).clamp(min=0)
    equal = (weight == weight[:, :1]).all(1)
    step = torch.where(equal, weight[:, 0], torch.maximum(std / 2, reach / (MAX_GRID - 2)))
    step = torch.maximum(step, reach / (MAX_GRID - 2))
    shift = (weight / step[:, None]).round().long()
    cells = int((reach / step).max().ceil().item()) + 2
    grid = torch.arange(cells, device=device)
    chance = torch.sigmoid(forth)
    spread = torch.where(equal, std, (std**2 + step**2 / 12).sqrt())

    # States have one more cell, always empty, for what comes from outside of the grid. later[:, i]: likelihood of the
    # target from the partial sum after terms 0..i; moved[:, i]: the same if term i is one, from the sum before it.
    later, moved = (torch.zeros(batch, n, cells + 1, dtype=torch.double, device=device) for _ in range(2))
    last = log_likelihood(grid * step[:, None] - target[:, None], spread, exact)
    later[:, -1, :-1] = (last - last.amax(1, keepdim=True)).exp()
    for i in range(n - 1, -1, -1):
        torch.gather(later[:, i], 1, _from(grid, shift[:, i], cells), out=moved[:, i])
        if i:
            state = torch.lerp(later[:, i], moved[:, i], chance[:, i, None])
            torch.div(state, state.amax(1, keepdim=True).clamp(min=1e-300), out=later[:, i - 1])
    so_far = torch.zeros(batch, cells + 1, dtype=torch.double, device=device)
    so_far[:, 0] = 1
    ones, zeros = torch.empty_like(forth), torch.empty_like(forth)
    for i in range(n):
        ones[:, i] = (so_far * moved[:, i]).sum(1)
        zeros[:, i] = (so_far * later[:, i]).sum(1)
        if i < n - 1:
            so_far = torch.lerp(so_far, so_far.gather(1, _from(grid, -shift[:, i], cells)), chance[:, i, None])
    return (ones.clamp(min=1e-300) / zeros.clamp(min=1e-300)).log()


def _from(grid: Tensor, shift: Tensor, cells: int) -> Tensor:
    """Return where each cell of a state [B, cells + 1] gets its value from: ``s + shift[b]``, or the empty cell."""
    index = grid + shift[:, None]
    index = torch.where(index < 0, cells, index.clamp(max=cells))
    return torch.nn.functional.pad(index, (0, 1), value=cells)


def log_likelihood(error: Tensor, std: Tensor, exact: Tensor) -> Tensor:
    """Gaussian log likelihood of ``error`` [B, ...] = sum - target, one-sided where not ``exact`` [B]."""
    error = torch.where(exact[:, None], error, error.clamp(min=0))
    return -0.5 * (error / std[:, None]) ** 2
