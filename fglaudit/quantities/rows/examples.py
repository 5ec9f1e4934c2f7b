"""A few true rows beside what an attack made of them: the best, the median and the worst target, for reports.

They are made by the scorer, which holds the truth, and lie in the records of a run; no attack is given a record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.quantities.rows.game import Game
from fglaudit.quantities.rows.metrics import RELATIVE_TOLERANCE, RowScores, support

MOST_ENTRIES = 40
"""Entries of a row that are kept, so that a record stays small; how many there are is kept too."""
WHICH = ("best", "median", "worst")


@dataclass(frozen=True)
class RowExample:
    """One target's true and rebuilt row.

    Attributes:
        which: "best", "median" or "worst" of all targets, by F1 (real-valued rows: cosine).
        node: its id.
        score: F1, or the cosine.
        exact: whether the whole row counts as exact.
        guessed: whether the attack had no row for this node, so that the prior's guess stands here.
        binary: whether entries are 0 or 1, so that naming their columns says all.
        entries: (column, true, rebuilt, right) where either is not zero, the largest first.
        more: how many further ones there are.
    """

    which: str
    node: int
    score: float
    exact: bool
    guessed: bool
    binary: bool
    entries: tuple[tuple[int, float, float, bool], ...]
    more: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "entries": [list(entry) for entry in self.entries]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RowExample:
        """Read back :meth:`to_json`. Raises ValueError for anything else."""
        try:
            entries = tuple((int(c), float(t), float(r), bool(y)) for c, t, r, y in data["entries"])
            return RowExample(**{**data, "entries": entries}).checked()
        except (TypeError, KeyError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def checked(self) -> RowExample:
        """Return it; raises ValueError for values that cannot be."""
        flags = all(type(value) is bool for value in (self.exact, self.guessed, self.binary))
        numbers = type(self.node) is int and type(self.more) is int and min(self.node, self.more) >= 0
        if not (self.which in WHICH and flags and numbers and isinstance(self.score, int | float)):
            raise ValueError(f"no example of a row: {self.which!r} of node {self.node!r}")
        if not (-1.001 <= self.score <= 1.001 and len(self.entries) <= MOST_ENTRIES):
            raise ValueError("an example of a row has a score in [-1, 1] and few entries")
        return self


def row_examples(
    games: Sequence[Game],
    results: Sequence[Reconstruction],
    given: Sequence[Reconstruction],
    scores: RowScores,
) -> tuple[RowExample, ...]:
    """Return the best, the median and the worst target, for an attack that says whose rows it has.

    Args:
        results: one per game, with guesses where the attack gave none.
        given: the same without them.
        scores: of the pooled targets of ``games``.
    """
    if all(bool((result.nodes < 0).all()) for result in given):
        return ()
    measure = scores.cosine if games[0].kind is FeatureKind.REAL else scores.f1
    order = torch.argsort(measure, descending=True, stable=True)
    places = [int(order[i]) for i in (0, len(order) // 2, -1)]
    found = []
    for which, place in list(zip(WHICH, places, strict=True))[: len(order)]:
        index, target = _place(games, place)
        score = float(measure[place])
        found.append(_example(which, games[index], results[index], given[index], target, score, scores, place))
    return tuple(found)


def _place(games: Sequence[Game], place: int) -> tuple[int, int]:
    """Return the game of the pooled target ``place``, and its position there."""
    for index, game in enumerate(games):
        if place < len(game.targets):
            return index, place
        place -= len(game.targets)
    raise IndexError(place)


def _example(
    which: str,
    game: Game,
    result: Reconstruction,
    given: Reconstruction,
    target: int,
    score: float,
    scores: RowScores,
    place: int,
) -> RowExample:
    node = int(game.targets[target])
    truth, rebuilt = game.truth[target], game.answer(result)[0][target]
    real, guess = (support(row.unsqueeze(0), game.kind)[0] for row in (truth, rebuilt))
    if game.kind is FeatureKind.BINARY:
        right = real == guess
    else:
        right = (rebuilt - truth).abs() <= RELATIVE_TOLERANCE * truth.abs().max()
    columns = (real | guess).nonzero().squeeze(1)
    size = torch.maximum(truth.abs(), rebuilt.abs())[columns]
    columns = columns[torch.argsort(size, descending=True, stable=True)] if game.kind is FeatureKind.REAL else columns
    entries = tuple(
        (int(c), _short(truth[c].item()), _short(rebuilt[c].item()), bool(right[c])) for c in columns[:MOST_ENTRIES]
    )
    return RowExample(
        which=which,
        node=node,
        score=_short(score),
        exact=bool(scores.exact_rate[place] > 0),
        guessed=not bool((given.nodes == node).any()),
        binary=game.kind is FeatureKind.BINARY,
        entries=entries,
        more=max(0, len(columns) - MOST_ENTRIES),
    )


def _short(value: float) -> float:
    """Return four digits of ``value``, enough to compare two rows by eye; 0 for what is no number."""
    return float(f"{value:.4g}") if math.isfinite(value) else 0.0
