"""What an attack asserts, checked: how many targets' directions are among its rows, and how many of its claims are
nobody's.

A row's direction is right where its cosine with the truth exceeds 0.9999 in absolute value, whoever it was assigned to.
A row of zeros has no direction to be found; claimed, it is false unless somebody has such a row.
Real-valued rows are often found up to a factor only, or without knowing whose they are; these two figures say so
separately from the exact rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.interfaces import Reconstruction
from fglaudit.quantities.rows.game import Game
from fglaudit.quantities.rows.metrics import directions
from fglaudit.view import View

SAME_DIRECTION = 0.9999
_CHUNK = 4096


@dataclass(frozen=True)
class Claims:
    """What became of an attack's rows, over all targets of one or several views.

    Attributes:
        found: which targets' directions are among the rows [T].
        claimed: how many rows the attack asserts to be somebody's; None where it does not tell.
        false: how many of these are nobody's.
    """

    found: Tensor
    claimed: int | None
    false: int

    @staticmethod
    def pool(parts: Sequence[Claims]) -> Claims:
        """Put the targets of several views in a row."""
        claimed = [part.claimed for part in parts if part.claimed is not None]
        found = torch.cat([part.found for part in parts])
        return Claims(found, sum(claimed) if claimed else None, sum(part.false for part in parts))

    def columns(self) -> dict[str, float | None]:
        """Return the columns of ``findings.csv``."""
        rate = None if not self.claimed else self.false / self.claimed
        claimed = None if self.claimed is None else self.claimed / max(1, len(self.found))
        return {
            "direction_rate": float(self.found.double().mean().item()),
            "claimed_rate": claimed,
            "false_claim_rate": rate,
        }


def check_claims(result: Reconstruction, game: Game, view: View) -> Claims:
    """Compare ``result`` with the truth; rows that the observer knew before are neither found nor false.

    Where the attack claims, its other rows are not looked at; otherwise all are.
    """
    asserted = torch.ones(len(result.rows), dtype=torch.bool) if result.claimed is None else result.claimed
    rows = directions(result.rows[asserted].double())
    truth, known = (directions(x.double()) for x in (game.truth, view.known_rows().x))
    found = torch.zeros(len(truth), dtype=torch.bool)
    empty = bool((~truth.any(1)).any()) or bool((~known.any(1)).any())
    wrong = 0
    for part in torch.split(rows, _CHUNK):
        same = (part @ truth.T).abs() > SAME_DIRECTION
        found |= same.any(0)
        known_already = ((part @ known.T).abs() > SAME_DIRECTION).any(1)
        right = same.any(1) | known_already | (~part.any(1) & empty)
        wrong += int((~right).sum().item())
    return Claims(found, None if result.claimed is None else len(rows), wrong)
