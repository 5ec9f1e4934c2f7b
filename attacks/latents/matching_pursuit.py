"""Sparse real-valued rows from few random measurements, without any known row: orthogonal matching pursuit.

Pati, Rezaiifar and Krishnaprasad (1993); Tropp and Gilbert (2007), algorithm 3: the column that fits the residual best
joins the others, and all are fitted anew. A row of k entries that repeats M measurements in general position is the
only one of at most k entries if ``2 k <= M``; that the row sought has no more is an assumption, so that nothing is
proven.
"""

from __future__ import annotations

import torch
from torch import Tensor

_ROWS_AT_ONCE = 256
_EXACT = 2e-6
"""Residual of a row that repeats its measurements, relative to them: of float32."""


def matching_pursuit(matrix: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows [U, F] of at most half as many entries as measurements, and which repeat theirs [U].

    Args:
        matrix: [M, F].
        values: measurements [U, M].
    """
    matrix = matrix.double()
    found = [_pursued(matrix, part.double()) for part in torch.split(values, _ROWS_AT_ONCE)]
    rows, solved = (torch.cat(column) for column in zip(*found, strict=True))
    return rows.to(values), solved


def _pursued(matrix: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows [u, F] and which repeat ``values`` [u, M] [u]."""
    count, features = matrix.shape
    unit = matrix / matrix.norm(dim=0).clamp(min=1e-300)
    rows = values.new_zeros(len(values), features)
    least = _EXACT * values.norm(dim=1)
    solved = least == 0  # a row of zeros
    chosen = torch.empty(len(values), 0, dtype=torch.long, device=values.device)
    left = values
    for _ in range(min(count // 2, features)):
        if bool(solved.all()):
            break
        fit = (left @ unit).abs().scatter(1, chosen, -1.0)
        chosen = torch.cat([chosen, fit.argmax(1, keepdim=True)], 1)
        columns = matrix.T[chosen].mT  # [u, M, k]
        entries = torch.linalg.lstsq(columns, values[..., None]).solution[..., 0]
        left = values - (columns @ entries[..., None])[..., 0]
        fresh = ~solved & (left.norm(dim=1) <= least)
        rows[fresh] = torch.zeros_like(rows[fresh]).scatter_(1, chosen[fresh], entries[fresh])
        solved |= fresh
    return rows, solved
