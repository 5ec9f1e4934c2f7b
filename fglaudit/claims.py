"""What an attack asserts, checked: how many targets' directions are among its rows, and how many of its claims are nobody's.

A row's direction is right where its cosine with the truth exceeds 0.9999 in absolute value, whoever it was assigned to. Real-valued rows
are often found up to a factor only, or without knowing whose they are; these two figures say so separately from the exact rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.game import Game
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.view import View

SAME_DIRECTION = 0.9999
_CHUNK = 4096


@dataclass(frozen=True)
class Claims:
    """Counts over all targets of one or several views. ``claimed`` is None where the attack does not claim."""

    targets: int
    directions: int
    claimed: int | None
    false: int

    @staticmethod
    def pool(parts: Sequence[Claims | None]) -> Claims | None:
        """Add up; None where no view was checked."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        claimed = [part.claimed for part in known if part.claimed is not None]
        return Claims(
            sum(part.targets for part in known),
            sum(part.directions for part in known),
            sum(claimed) if claimed else None,
            sum(part.false for part in known),
        )

    def columns(self) -> dict[str, float | None]:
        """Return the columns of ``findings.csv``."""
        rate = None if not self.claimed else self.false / self.claimed
        claimed = None if self.claimed is None else self.claimed / self.targets
        return {"direction_rate": self.directions / self.targets, "claimed_rate": claimed, "false_claim_rate": rate}


def check_claims(result: Reconstruction, game: Game, view: View) -> Claims | None:
    """Compare ``result`` with the truth; rows that the observer knew before are neither found nor false.

    Returns None where there is nothing to check: no targets, or discrete rows without claims, whose exact rate says it all.
    """
    if len(game.targets) == 0 or (result.claimed is None and game.kind is not FeatureKind.REAL):
        return None
    asserted = torch.ones(len(result.rows), dtype=torch.bool) if result.claimed is None else result.claimed
    rows = _directions(result.rows[asserted])
    truth, known = _directions(game.truth), _directions(view.known_rows().x.to(game.truth))
    hit = torch.zeros(len(truth), dtype=torch.bool)
    wrong = 0
    for part in torch.split(rows, _CHUNK):
        same = (part @ truth.T).abs() > SAME_DIRECTION
        hit |= same.any(0)
        known_already = ((part @ known.T).abs() > SAME_DIRECTION).any(1)
        wrong += int((~same.any(1) & ~known_already).sum().item())
    return Claims(len(truth), int(hit.sum().item()), None if result.claimed is None else len(rows), wrong)


def _directions(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.double(), dim=1)
