"""One attack by one observer, measured: run, self-tested, scored beside its control."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from fglaudit.attacks.prior_only import prior_only
from fglaudit.finding import Finding, Status
from fglaudit.game import Game, Score, breakdown, cluster_sums, score
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.rng import derive
from fglaudit.selftest import self_test
from fglaudit.stats import UNINFORMATIVE, advantage_interval
from fglaudit.view import View


@dataclass(frozen=True)
class Arena:
    """One observer of a cell, ready to be attacked: one view, game and prior-only guess per member (one, or every client)."""

    views: tuple[View, ...]
    games: tuple[Game, ...]
    controls: tuple[Reconstruction, ...]

    @staticmethod
    def of(views: Sequence[View], games: Sequence[Game], seed: int) -> Arena:
        """Make the prior-only guesses that every attack of this observer is compared with."""
        controls = [
            prior_only(view, game.targets, rng=derive(seed, "control", view.observer.name))
            for view, game in zip(views, games, strict=True)
        ]
        return Arena(tuple(views), tuple(games), tuple(controls))

    @cached_property
    def guess(self) -> Score:
        """The score of the prior-only guesses."""
        return score(self.games, self.controls, matching=False)


@dataclass(frozen=True)
class Measurement:
    """What one observer x attack came to: the finding, and what the record keeps beside it."""

    finding: Finding
    clusters: list[list[float]] = field(default_factory=list)
    breakdown: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(attack: Attack, blank: Finding, arena: Arena, seed: int, device: torch.device) -> Measurement:
    """Run one attack on every view of an observer, self-test it, and score it beside its control.

    Whatever goes wrong with the attack ends in the row: one attack's failure must not cost the others (rule 7).

    Args:
        blank: the row's identity and what training came to.
    """
    if not any(len(game.targets) for game in arena.games):
        reason = "no node's features reach this observer: nothing that depends on them is sent"
        return Measurement(replace(blank, status=Status.NOT_APPLICABLE, reason=reason))
    unsupported = next((why for view in arena.views if (why := attack.unsupported(view)) is not None), None)
    if unsupported is not None:
        return Measurement(replace(blank, status=Status.NOT_APPLICABLE, reason=unsupported))
    try:
        return _measure(attack, blank, arena, seed, device)
    except Exception as error:
        return Measurement(replace(blank, status=Status.FAILED, reason=f"{type(error).__name__}: {error}"))


def _measure(attack: Attack, blank: Finding, arena: Arena, seed: int, device: torch.device) -> Measurement:
    name = type(attack).name
    start = time.perf_counter()
    results = [attack.run(v, rng=derive(seed, "attack", name, v.observer.name), device=device) for v in arena.views]
    seconds = time.perf_counter() - start
    rebuilt = [r for r in results if isinstance(r, Reconstruction)]
    if len(rebuilt) < len(results):
        kinds = ", ".join(sorted({r.quantity for r in results if isinstance(r, Inference)}))
        return Measurement(replace(blank, status=Status.FAILED, reason=f"no scorer for inferences of kind {kinds}"))
    largest = max(range(len(arena.games)), key=lambda i: len(arena.games[i].targets))
    game = arena.games[largest]
    broken = self_test(
        attack,
        arena.views[largest],
        arena.controls[largest],
        game.targets,
        game.truth,
        rng=derive(seed, "self-test", name),
        device=device,
    )
    answers = [with_guesses(result, guess) for result, guess in zip(rebuilt, arena.controls, strict=True)]
    return _scored(attack, replace(blank, seconds_attack=seconds), arena, score(arena.games, answers), broken, seed)


def primary_metric(attack: Attack, kind: FeatureKind) -> str:
    """Return the metric that the advantage is computed on: the attack's own, but cosine for F1 where features are real-valued,
    since any dense guess finds all non-zero entries of dense rows."""
    metric = type(attack).metric
    return "cosine" if metric == "f1" and kind is FeatureKind.REAL else metric


def with_guesses(result: Reconstruction, guess: Reconstruction) -> Reconstruction:
    """Return ``result`` with the prior-only guess for the nodes that it has no row for.

    Anybody can guess; counting such rows as empty would let an attack that covers few targets fall below its control and hide
    what it does learn. They come last by confidence and are never proven.
    """
    extra = ~torch.isin(guess.nodes, result.nodes)
    count = int(extra.sum().item())
    proven = None if result.proven is None else torch.cat([result.proven, torch.zeros(count, dtype=torch.bool)])
    return Reconstruction(
        rows=torch.cat([result.rows, guess.rows[extra].to(result.rows)]),
        nodes=torch.cat([result.nodes, guess.nodes[extra]]),
        confidence=torch.cat([result.confidence, torch.zeros(count).to(result.confidence)]),
        proven=proven,
    )


def _scored(attack: Attack, blank: Finding, arena: Arena, found: Score, broken: str | None, seed: int) -> Measurement:
    metric, games, guess = primary_metric(attack, arena.games[0].kind), arena.games, arena.guess
    values, controls = getattr(found.rows, metric), getattr(guess.rows, metric)
    clusters = cluster_sums(games, values, controls)
    point, low, high, kind = advantage_interval(torch.tensor(clusters), derive(seed, "bootstrap"))
    if found.false_proofs:
        broken = f"{found.false_proofs} rows it called proven are wrong" + (f"; {broken}" if broken else "")
    control = float(controls.mean().item())
    reason = "uninformative: the control alone reaches 0.99" if control >= UNINFORMATIVE else ""
    per_target = found.rows.f1.sort(descending=True).values
    finding = replace(
        blank,
        status=Status.BROKEN_ATTACK if broken else Status.OK,
        reason=broken or reason,
        targets=len(values),
        metric=metric,
        value=float(values.mean().item()),
        control=control,
        advantage=point,
        advantage_low=low,
        advantage_high=high,
        interval=kind,
        exact_rate=float(found.rows.exact_rate.mean().item()),
        matched_rate=found.matched_rate,
        cosine=float(found.rows.cosine.mean().item()),
        f1=float(found.rows.f1.mean().item()),
        auc=found.auc,
        relative_error=float(found.rows.relative_error.mean().item()),
        control_exact_rate=float(guess.rows.exact_rate.mean().item()),
        control_cosine=float(guess.rows.cosine.mean().item()),
        control_f1=float(guess.rows.f1.mean().item()),
        control_auc=guess.auc,
        identifiable_rate=None if found.proven is None else float(found.proven.float().mean().item()),
        worst_decile=float(per_target[: max(1, len(per_target) // 10)].mean().item()),
    )
    if found.proven is not None and not bool(found.proven.all()):
        rest = ~found.proven
        unproven = [float(rows.f1[rest].mean().item()) for rows in (found.rows, guess.rows)]
        finding = replace(finding, f1_unproven=unproven[0], control_f1_unproven=unproven[1])
    return Measurement(finding, clusters, breakdown(games, values))
