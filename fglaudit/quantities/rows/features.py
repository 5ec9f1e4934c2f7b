"""Feature rows: subjects are node ids [T], a result is a :class:`fglaudit.interfaces.Reconstruction`.

Asked about are the protocol's exposed nodes of which the observer holds no row. The guess is the prior-only one
(:mod:`fglaudit.adversary.priors.prior_only`), or where another one is better for a figure that one
(:mod:`fglaudit.quantities.rows.controls`). The metric is the attack's own: exact rows, F1, cosine, or how many
directions are found (:mod:`fglaudit.quantities.rows.claims`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.priors.prior_only import prior_only
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import ClassReports
from fglaudit.quantities.base import (
    ALL_ROWS_KNOWN,
    NO_ROW_REACHES,
    Attempt,
    Comparison,
    Excess,
    ObserverTruth,
    Quantity,
)
from fglaudit.quantities.rows.breakdown import breakdown
from fglaudit.quantities.rows.claims import Claims, check_claims
from fglaudit.quantities.rows.class_alone import class_alone
from fglaudit.quantities.rows.controls import class_guesses, guesses_for, share_of_one_row
from fglaudit.quantities.rows.examples import row_examples
from fglaudit.quantities.rows.game import Game, Score, score
from fglaudit.quantities.rows.metrics import matched_exact, score_rows
from fglaudit.quantities.rows.primary_metric import primary_metric
from fglaudit.quantities.rows.unique_rows import unique_exact
from fglaudit.view import View

DIRECTION_RATE = "direction_rate"
"""Primary metric of attacks that find real-valued rows without being able to say whose they are."""


class Features(Quantity):
    """See the module docstring."""

    name: ClassVar[str] = "features"
    metric: ClassVar[str] = "exact_rate"

    def ask(self, truth: ObserverTruth) -> Game:
        return Game.of(truth)

    def nothing_to_ask(self, asked: Sequence[Game]) -> str | None:
        if any(len(game.targets) for game in asked):
            return None
        return ALL_ROWS_KNOWN if any(game.known for game in asked) else NO_ROW_REACHES

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Reconstruction:
        return prior_only(view, subjects, rng)

    def accepts(self, result: object) -> bool:
        return isinstance(result, Reconstruction)

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        views: list[View] = [each.view for each in attempts]
        asked: list[Game] = [each.question for each in attempts]
        results: list[Reconstruction] = [each.result for each in attempts]
        guesses: list[Reconstruction] = [each.guess for each in attempts]
        guess = score(asked, guesses, matching=False)
        filled = [with_guesses(result, prior) for result, prior in zip(results, guesses, strict=True)]
        found = score(asked, filled)
        by_class = class_guesses(asked, views) if ClassReports in type(attack).consumes else None
        for column in ("exact_rate", "cosine", "f1"):
            better = guesses_for(column, asked, views, guesses, guess.rows, by_class)
            if better is not guesses:
                guess, found = _beside(column, asked, results, better, guess, found)
        metric = primary_metric(attack, asked[0].kind, views[0].public)
        columns = _columns(found, guess)
        claimed = any(r.claimed is not None for r in results)
        checked = None
        if metric == DIRECTION_RATE or asked[0].kind is FeatureKind.REAL or claimed:
            checked = _checked(results, asked, views)
            columns |= checked.columns()
        if metric == DIRECTION_RATE and checked is not None:
            values, controls = checked.found.double(), _checked(guesses, asked, views).found.double()
        else:
            values, controls = getattr(found.rows, metric), getattr(guess.rows, metric)
        return Comparison(
            metric=metric,
            values=values,
            controls=controls,
            clusters=torch.cat([game.clusters for game in asked]),
            columns=columns,
            breakdown=breakdown(asked, values),
            wrong=f"{found.false_proofs} rows it called proven are wrong" if found.false_proofs else None,
            examples=tuple(one.to_json() for one in row_examples(asked, filled, results, found.rows)),
            told=_told(asked, views, metric),
        )

    def planted_score(self, planted: Planted, result: Reconstruction, rng: torch.Generator) -> float:
        game = Game.about(planted.nodes, planted.rows, planted.view.public.features)
        if planted.metric == "exact_rate" or len(game.targets) == 0:
            return exact_share(result, game)
        return _mean(score([game], [result], matching=False).rows.cosine)

    def planted_words(self, planted: Planted, score: float, least: float) -> str:
        if planted.metric == "cosine":
            return f"on a planted plain leak the cosine of its rows was {score:.3f}, not {least:g}"
        return f"on a planted plain leak it rebuilt {score:.1%} of {len(planted.nodes)} rows, not {least:.0%}"

    def unique_exact(self, attempt: Attempt) -> int | None:
        game, guess = attempt.question, attempt.guess

        def guesses() -> Iterator[Reconstruction]:  # most results on noise have no exact row to compare with them
            yield guess
            by_guess = score([game], [guess], matching=False).rows
            yield from guesses_for("exact_rate", [game], [attempt.view], [guess], by_guess)

        return unique_exact(game, attempt.result, guesses())

    def excess(self, attack: Attack, attempt: Attempt) -> tuple[Excess, ...]:
        """Return the advantage in the attack's own metric, and how much larger its share of exact rows is: one figure
        [1], which also counts for attacks that do not know whose rows they have."""
        view, question, result, guess = attempt
        more = exact_share(result, question) - max(exact_share(guess, question), share_of_one_row(question, view))
        rows = Excess(torch.tensor([more], dtype=torch.double), torch.zeros(1, dtype=torch.long))
        if len(question.targets) == 0:
            return (rows,)
        return (*super().excess(attack, attempt), rows)


def _columns(found: Score, guess: Score) -> dict[str, float | None]:
    """Return the columns of ``findings.csv`` that every attack on feature rows has, beside those of the guess."""
    per_target = found.rows.f1.sort(descending=True).values
    columns = {
        "exact_rate": _mean(found.rows.exact_rate),
        "matched_rate": found.matched_rate,
        "cosine": _mean(found.rows.cosine),
        "f1": _mean(found.rows.f1),
        "auc": found.auc,
        "relative_error": _mean(found.rows.relative_error),
        "control_exact_rate": _mean(guess.rows.exact_rate),
        "control_cosine": _mean(guess.rows.cosine),
        "control_f1": _mean(guess.rows.f1),
        "control_auc": guess.auc,
        "identifiable_rate": None if found.proven is None else _mean(found.proven.float()),
        "worst_decile": _mean(per_target[: max(1, len(per_target) // 10)]),
    }
    if found.proven is not None and not bool(found.proven.all()):
        rest = ~found.proven
        columns |= {"f1_unproven": _mean(found.rows.f1[rest]), "control_f1_unproven": _mean(guess.rows.f1[rest])}
    return columns


def exact_share(result: Reconstruction, game: Game) -> float:
    """Return the share of the game's rows that ``result`` has exactly; where an attack never knows whose row it has,
    the share of rows that it has at all."""
    if len(result.rows) == 0 or len(game.targets) == 0:
        return 0.0
    if bool((result.nodes < 0).all()):
        return matched_exact(result.rows.to(game.truth), game.truth, game.kind) / len(game.targets)
    rows, present, _ = game.answer(result)
    return float(score_rows(rows, present, game.truth, game.kind).exact_rate.mean().item())


def _beside(
    column: str,
    asked: Sequence[Game],
    results: Sequence[Reconstruction],
    guesses: Sequence[Reconstruction],
    guess: Score,
    found: Score,
) -> tuple[Score, Score]:
    """Return the scores of guess and attack with ``column`` as it is where nodes without a row get ``guesses``."""
    filled = [with_guesses(result, prior) for result, prior in zip(results, guesses, strict=True)]
    again = [score(asked, rows, matching=False).rows for rows in (guesses, filled)]
    control, value = (
        old._replace(rows=dataclasses.replace(old.rows, **{column: getattr(new, column)}))
        for old, new in zip((guess, found), again, strict=True)
    )
    return control, value


def _checked(results: Sequence[Reconstruction], asked: Sequence[Game], views: Sequence[View]) -> Claims:
    return Claims.pool([check_claims(*part) for part in zip(results, asked, views, strict=True)])


def _told(asked: Sequence[Game], views: Sequence[View], metric: str) -> Tensor | None:
    """Return ``metric`` per target [V] of a guess that is told the class that each node predicts; None where nodes
    report no class, an observer knows no row, or the metric is about rows without nodes."""
    told = [class_alone(view, game.predicted, game.targets) for game, view in zip(asked, views, strict=True)]
    guesses = [guess for guess in told if guess is not None]
    if metric == DIRECTION_RATE or len(guesses) < len(told):
        return None
    values: Tensor = getattr(score(asked, guesses, matching=False).rows, metric)
    return values


def _mean(values: Tensor) -> float:
    return float(values.mean().item())


def with_guesses(result: Reconstruction, guess: Reconstruction) -> Reconstruction:
    """Return ``result`` with the prior-only guess for the nodes that it has no row for (of a node with several samples:
    as many guesses as it has rows too few).

    Anybody can guess; counting such rows as empty would let an attack that covers few targets fall below its control
    and hide what it does learn. They come last by confidence and are never proven or claimed.
    """
    given = torch.bincount(
        result.nodes[result.nodes >= 0], minlength=int(guess.nodes.max().item()) + 1 if len(guess.nodes) else 0
    )
    extra = _occurrence(guess.nodes) >= given[guess.nodes]
    none = torch.zeros(int(extra.sum().item()), dtype=torch.bool)
    return Reconstruction(
        rows=torch.cat([result.rows, guess.rows[extra].to(result.rows)]),
        nodes=torch.cat([result.nodes, guess.nodes[extra]]),
        confidence=torch.cat([result.confidence, torch.zeros(len(none)).to(result.confidence)]),
        proven=None if result.proven is None else torch.cat([result.proven, none]),
        claimed=None if result.claimed is None else torch.cat([result.claimed, none]),
    )


def _occurrence(nodes: Tensor) -> Tensor:
    """Return how often each entry of ``nodes`` [R] stood in the list before [R]."""
    order = torch.argsort(nodes, stable=True)
    ordered = nodes[order]
    first = torch.searchsorted(ordered, ordered)
    return torch.empty_like(nodes).scatter_(0, order, torch.arange(len(nodes)) - first)
