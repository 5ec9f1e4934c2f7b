"""One observer of a cell, ready to be attacked, and what an attack on it came to before it is a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from fglaudit.adversary.prior_only import prior_only
from fglaudit.interfaces import Reconstruction
from fglaudit.quantities import Truth
from fglaudit.rng import derive
from fglaudit.scoring.game import Game, Score, score
from fglaudit.view import View


@dataclass(frozen=True)
class Arena:
    """One view per member of an observer (one, or every client in turn), with the truth about it.

    Attributes:
        views: what an attack gets.
        truths: what is true; for the scorer alone.
        seed: of the cell.
    """

    views: tuple[View, ...]
    truths: tuple[Truth, ...]
    seed: int

    @cached_property
    def games(self) -> tuple[Game, ...]:
        """The reconstruction games, one per view."""
        return tuple(Game.of(f.graph, f.protocol, f.observer, f.auxiliary, f.pooled) for f in self.truths)

    @cached_property
    def controls(self) -> tuple[Reconstruction, ...]:
        """The prior-only guesses of the targets' rows, which every reconstruction is compared with."""
        return tuple(
            prior_only(view, game.targets, rng=derive(self.seed, "control", view.observer.name))
            for view, game in zip(self.views, self.games, strict=True)
        )

    @cached_property
    def guess(self) -> Score:
        """The score of the prior-only guesses."""
        return score(self.games, self.controls, matching=False)


@dataclass(frozen=True)
class Outcome:
    """Scores of one attack on all views of an arena.

    Attributes:
        quantity: what was inferred.
        metric: name of the primary metric.
        values, controls: it per target, of the attack and of its control [T].
        clusters: per cluster the number of targets and the sums of values and controls.
        columns: further columns of the finding.
        breakdown: the primary metric by degree bucket, class and client.
        broken: what shows that the attack is not to be believed, or None.
    """

    quantity: str
    metric: str
    values: Tensor
    controls: Tensor
    clusters: list[list[float]]
    columns: Mapping[str, float | None]
    broken: str | None
    breakdown: dict[str, dict[str, float]] = field(default_factory=dict)
