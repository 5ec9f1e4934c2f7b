"""Messages of one constraint size by a forward-backward pass over the terms, with the partial sum as the state.

The grid of partial sums is finer than the noise, and exact where all coefficients are equal (counts). Sums above what
the target allows fall off it.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_GRID = 96
_RESCALED_EVERY = 4
"""Terms after which likelihoods are divided by their largest: a term takes 15 orders of magnitude at most."""


class GridMessages:
    """B constraints of n terms each; what no message changes is kept.

    Args:
        weight: coefficients [B, n].
        target, std, exact: of the constraints [B].
    """

    def __init__(self, weight: Tensor, target: Tensor, std: Tensor, exact: Tensor) -> None:
        reach = (torch.where(exact, target, torch.minimum(target, weight.sum(1))) + 4 * std).clamp(min=0)
        equal = (weight == weight[:, :1]).all(1)
        step = torch.where(equal, weight[:, 0], torch.maximum(std / 2, reach / (MAX_GRID - 2)))
        step = torch.maximum(step, reach / (MAX_GRID - 2))
        cells = int((reach / step).max().ceil().item()) + 2
        shift = (weight / step[:, None]).round().long().clamp(max=cells)
        spread = torch.where(equal, std, (std**2 + step**2 / 12).sqrt())
        last = log_likelihood(
            torch.arange(cells, device=weight.device) * step[:, None] - target[:, None], spread, exact
        )
        self._last = (last - last.amax(1, keepdim=True)).exp()
        self._shift = shift.T.contiguous()  # [n, B]
        self._back = int(shift.max()) - self._shift
        self._rows = torch.arange(len(weight), device=weight.device)

    def messages(self, forth: Tensor) -> Tensor:
        """Return messages to the bits [B, n] from the log odds that they send [B, n]."""
        chance = torch.sigmoid(forth).T[..., None]
        later, moved = self._later(chance)
        before = self._before(chance)
        ones, zeros = (before * moved).sum(2), (before * later).sum(2)
        return (ones.clamp(min=1e-300) / zeros.clamp(min=1e-300)).log().T

    def _later(self, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return, by term i, the likelihood of the target from the partial sum after terms 0..i, and the same if term i
        is one, from the sum before it; both [n, B, cells], up to a factor of each."""
        (n, batch), cells, wide = self._shift.shape, self._last.shape[1], int(self._shift.max())
        held = torch.zeros(n, batch, cells + wide, dtype=torch.double, device=chance.device)  # empty beyond the grid
        later, moved = held[:, :, :cells], torch.empty(n, batch, cells, dtype=torch.double, device=chance.device)
        windows = held.unfold(2, cells, 1)
        later[-1] = self._last
        for i in range(n - 1, -1, -1):
            moved[i] = windows[i][self._rows, self._shift[i]]
            if i:
                torch.lerp(later[i], moved[i], chance[i], out=later[i - 1])
                if i % _RESCALED_EVERY == 0:
                    later[i - 1] /= later[i - 1].amax(1, keepdim=True).clamp(min=1e-300)
        return later, moved

    def _before(self, chance: Tensor) -> Tensor:
        """Return, by term i, the distribution of the partial sum before it [n, B, cells]."""
        (n, batch), cells, wide = self._shift.shape, self._last.shape[1], int(self._shift.max())
        held = torch.zeros(n, batch, wide + cells, dtype=torch.double, device=chance.device)  # empty below zero
        before, windows = held[:, :, wide:], held.unfold(2, cells, 1)
        before[0, :, 0] = 1
        for i in range(n - 1):
            torch.lerp(before[i], windows[i][self._rows, self._back[i]], chance[i], out=before[i + 1])
        return before


def log_likelihood(error: Tensor, std: Tensor, exact: Tensor) -> Tensor:
    """Gaussian log likelihood of ``error`` [B, ...] = sum - target, one-sided where not ``exact`` [B]."""
    error = torch.where(exact[:, None], error, error.clamp(min=0))
    return -0.5 * (error / std[:, None]) ** 2
