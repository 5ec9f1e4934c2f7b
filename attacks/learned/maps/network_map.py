"""A small network from sent rows to plain ones, for maps that no formula here undoes.

Two hidden layers beside a linear map, trained on standardised pairs; it approaches a curve and reads nothing exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.rng import derive

_HIDDEN = 128
_STEPS = 400
_BATCH = 256
_RATE = 3e-3
_MOST_COLUMNS = 512
_MOST_ROWS = 2**14


@dataclass(frozen=True)
class _Network:
    """Weights of three layers and of the linear map beside them, with the means and deviations of both sides."""

    weights: tuple[Tensor, ...]
    sent: tuple[Tensor, Tensor]
    plain: tuple[Tensor, Tensor]

    def __call__(self, sent: Tensor) -> Tensor:
        y = ((sent - self.sent[0]) / self.sent[1]).float()
        return _forward(self.weights, y).to(sent) * self.plain[1] + self.plain[0]


def _forward(weights: tuple[Tensor, ...], y: Tensor) -> Tensor:
    first, second, last, beside, *shifts = weights
    hidden = torch.relu(y @ first + shifts[0])
    hidden = torch.relu(hidden @ second + shifts[1])
    out: Tensor = hidden @ last + y @ beside + shifts[2]
    return out


def _drawn(rows: int, columns: int, rng: torch.Generator, like: Tensor) -> Tensor:
    start = torch.randn(rows, columns, generator=rng) * (2 / rows) ** 0.5
    drawn: Tensor = start.to(like.device).requires_grad_()
    return drawn


def _standard(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows.mean(0), rows.std(0).clamp(min=1e-6 * max(1e-30, float(rows.std().item())))


def network(plain: Tensor, sent: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return a network that was trained on the pairs (plain, sent) [n, D]; None where rows are too wide."""
    width = plain.shape[1]
    if width > _MOST_COLUMNS:
        return None
    plain, sent = plain[:_MOST_ROWS], sent[:_MOST_ROWS]
    rng = derive(0, "network")
    given, wanted = _standard(sent), _standard(plain)
    y, z = ((sent - given[0]) / given[1]).float(), ((plain - wanted[0]) / wanted[1]).float()
    sizes = ((width, _HIDDEN), (_HIDDEN, _HIDDEN), (_HIDDEN, width), (width, width))
    matrices = [_drawn(*size, rng, y) for size in sizes]
    shifts = [torch.zeros(columns, device=y.device, requires_grad=True) for columns in (_HIDDEN, _HIDDEN, width)]
    weights = (*matrices, *shifts)
    with torch.enable_grad():
        optimizer = torch.optim.Adam(weights, lr=_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
        for _ in range(_STEPS):
            batch = torch.randint(len(y), (min(_BATCH, len(y)),), generator=rng).to(y.device)
            loss = (_forward(weights, y[batch]) - z[batch]).square().mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return _Network(tuple(w.detach() for w in weights), given, wanted)
