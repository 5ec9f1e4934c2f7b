"""Guesses of feature rows that serve one figure each, so that every figure stands beside the best of the simple ones.

The prior-only guess (:mod:`fglaudit.adversary.priors.prior_only`) is made for the F1 of rows, and for the cosine of
real-valued ones. Where rows repeat (rows of zeros, a handful of categories) it hits few of them exactly, and one single
row hits many: the one that is most frequent among known rows, or a row of zeros, which is what most attacks return of
messages that hold nothing. An attack that tells rows from reported classes stands beside rows of the classes that known
labels and edges alone make likely. Which of these guesses stands is decided by the truth, in favour of the guess: an
attack must beat all of them. Nodes of which an attack has no row get the guess of the figure in question, so that they
count neither way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.priors.class_prior import rows_of_labels
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.quantities.rows.game import Game, score
from fglaudit.quantities.rows.metrics import RowScores, exact
from fglaudit.view import View


def guesses_for(
    metric: str,
    asked: Sequence[Game],
    views: Sequence[View],
    guesses: Sequence[Reconstruction],
    scored: RowScores,
    by_class: Sequence[Reconstruction] | None = None,
) -> Sequence[Reconstruction]:
    """Return the guesses that ``metric`` is compared with, one per view: ``guesses`` themselves where none is better.

    Args:
        guesses: the prior-only ones.
        scored: what these reach, over the targets of all views.
        by_class: those of :func:`class_guesses`, where the attack reads classes.
    """
    if by_class is not None and metric in ("f1", "cosine"):
        again = score(asked, by_class, matching=False).rows
        if float(getattr(again, metric).sum().item()) > float(getattr(scored, metric).sum().item()):
            guesses, scored = by_class, again
    if metric == "exact_rate":
        single = [likeliest_row(game, view) for game, view in zip(asked, views, strict=True)]
        if sum(hits for _, hits in single) > float(scored.exact_rate.sum().item()):
            return [_everywhere(guess, row) for guess, (row, _) in zip(guesses, single, strict=True)]
    if metric == "f1":
        empty = sum(int((~game.truth.any(1)).sum().item()) for game in asked)
        if empty > float(scored.f1.sum().item()):
            return [
                _everywhere(guess, torch.zeros(game.truth.shape[1])) for guess, game in zip(guesses, asked, strict=True)
            ]
    if metric == "cosine" and float(scored.cosine.sum().item()) < 0:
        return [Reconstruction(-guess.rows, guess.nodes, guess.confidence) for guess in guesses]
    return guesses


def class_guesses(asked: Sequence[Game], views: Sequence[View]) -> list[Reconstruction] | None:
    """Return rows of the classes that label propagation makes likely without any message; None where an observer knows
    no row with its label."""
    if not all(bool((view.known_rows().y >= 0).any()) for view in views):
        return None
    return [_of_likely_classes(view, game.targets) for game, view in zip(asked, views, strict=True)]


def _of_likely_classes(view: View, nodes: Tensor) -> Reconstruction:
    once, copies = torch.unique_consecutive(nodes, return_inverse=True)  # a node stands once per sample
    rows = rows_of_labels(view, once, propagate_labels(view, once))
    return Reconstruction(rows[copies], nodes, torch.zeros(len(nodes)))


def likeliest_row(game: Game, view: View) -> tuple[Tensor, int]:
    """Return the one row [F] that hits more targets, and how many: the most frequent among known rows, or one of
    zeros."""
    zeros = torch.zeros(game.truth.shape[1])
    frequent = _most_frequent(view)
    rows = [zeros, frequent] if len(frequent) else [zeros]
    return max(((row, _hits(game, row)) for row in rows), key=lambda each: each[1])


def share_of_one_row(game: Game, view: View) -> float:
    """Return the share of the targets that :func:`likeliest_row` hits."""
    return likeliest_row(game, view)[1] / len(game.targets) if len(game.targets) else 0.0


@once_per_view
def _most_frequent(view: View) -> Tensor:
    """Return the row [F] that stands most often among known rows; empty [0] where none stands twice."""
    rows = view.known_rows().x
    packed = (rows != 0).numpy() if view.public.features is FeatureKind.BINARY else rows.numpy()
    counts: dict[bytes, list[int]] = {}
    for place, row in enumerate(packed):
        counts.setdefault(row.tobytes(), []).append(place)
    best = max(counts.values(), key=len, default=[])
    return rows[best[0]] if len(best) > 1 else rows.new_zeros(0)


def _hits(game: Game, row: Tensor) -> int:
    return int(exact(row.to(game.truth).expand_as(game.truth), game.truth, game.kind).sum().item())


def _everywhere(guess: Reconstruction, row: Tensor) -> Reconstruction:
    return Reconstruction(row.to(guess.rows).expand(len(guess.rows), -1), guess.nodes, guess.confidence)
