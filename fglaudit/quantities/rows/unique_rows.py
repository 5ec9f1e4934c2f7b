"""Which rebuilt rows belong to one node alone.

Rows that several nodes share (rows of zeros, the words of a frequent kind) may be right by chance at many nodes; a row
that no other node of the graph has is right at one node at the most.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.quantities.rows.game import Game
from fglaudit.quantities.rows.metrics import RELATIVE_TOLERANCE, score_rows, support

MOST_COMPARED = 512
"""Rows that are compared with all others at the most, where rows are real-valued: some hundred show as much as all."""


def unique_exact(game: Game, result: Reconstruction, guesses: Iterable[Reconstruction]) -> int | None:
    """Return how many rows ``result`` has exactly that none of ``guesses`` has, and that no other node has; no guess is
    asked for once none is left.

    None where nodes have several samples: of these an attack's rows are matched to the truth in hindsight, so that more
    of them are right by chance.
    """
    if len(torch.unique(game.targets)) < len(game.targets):
        return None
    right, others = _exact(game, result), iter(guesses)
    while right.any() and (guess := next(others, None)) is not None:
        right &= ~_exact(game, guess)
    return int(unique_among(game.truth[right], game.every, game.kind).sum().item())


def _exact(game: Game, result: Reconstruction) -> Tensor:
    """Return which targets ``result`` has exactly [T]."""
    rows, present, _ = game.answer(result)
    return score_rows(rows, present, game.truth, game.kind).exact_rate > 0


def unique_among(rows: Tensor, every: Tensor, kind: FeatureKind) -> Tensor:
    """Return which of ``rows`` [R, F] stand once in ``every`` [N, F], of which they are part, a mask [R].

    A row of zeros never counts, since it is what comes out where there is nothing to go by.
    Binary rows are compared by which entries are not zero. Of real-valued rows two count as one unless a row that is
    exact for the one (:func:`.metrics.exact`) cannot be for the other; only the first ``MOST_COMPARED`` are looked at.
    """
    unique = torch.zeros(len(rows), dtype=torch.bool)
    if kind is not FeatureKind.REAL:
        packed = np.packbits(support(torch.cat([every, rows]), kind).cpu().numpy(), axis=1)
        _, kinds = np.unique(packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1), return_inverse=True)
        counts = np.bincount(kinds[: len(every)])
        unique = torch.from_numpy(counts[kinds[len(every) :]] == 1)
    elif len(rows):
        some = rows[:MOST_COMPARED].float()
        # Rows within twice the tolerance of each other in every entry are at most this far apart.
        reach = 2 * RELATIVE_TOLERANCE * some.abs().amax(1) * some.shape[1] ** 0.5
        unique[: len(some)] = (torch.cdist(some, every.float()) <= reach[:, None]).sum(1) == 1
    return unique & rows.any(1)
