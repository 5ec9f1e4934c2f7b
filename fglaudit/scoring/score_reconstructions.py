"""Rebuilt rows scored against the truth and beside the prior-only guess."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.rng import derive
from fglaudit.scoring.arena import Arena, Outcome
from fglaudit.scoring.claims import Claims, check_claims
from fglaudit.scoring.game import breakdown, cluster_sums, score
from fglaudit.scoring.selftest import self_test
from fglaudit.view import PublicFacts

DIRECTION_RATE = "direction_rate"
"""Primary metric of attacks that find real-valued rows without being able to say whose they are."""
_ALTERED = frozenset({"clip_norm", "levels", "kept_features"})
"""Public parameters of defenses that change the messages' values without noise."""


def reconstruction_outcome(
    attack: Attack, arena: Arena, results: Sequence[Reconstruction], device: torch.device
) -> Outcome:
    """Score ``results``, one per view of ``arena``, and self-test the attack on the view with the most targets."""
    games, guess = arena.games, arena.guess
    largest = max(range(len(games)), key=lambda i: len(games[i].targets))
    rng = derive(arena.seed, "self-test", type(attack).name)
    game = games[largest]
    broken = self_test(
        attack, arena.views[largest], arena.controls[largest], game.targets, game.truth, rng=rng, device=device
    )
    found = score(games, [with_guesses(result, guess) for result, guess in zip(results, arena.controls, strict=True)])
    if found.false_proofs:
        broken = f"{found.false_proofs} rows it called proven are wrong" + (f"; {broken}" if broken else "")
    metric = primary_metric(attack, games[0].kind, arena.views[0].public)
    per_target = found.rows.f1.sort(descending=True).values
    columns: dict[str, float | None] = {
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
    claims = (
        metric == DIRECTION_RATE or games[0].kind is FeatureKind.REAL or any(r.claimed is not None for r in results)
    )
    checked = _checked(arena, results) if claims else None
    columns |= checked.columns() if checked is not None else {}
    if metric == DIRECTION_RATE and checked is not None:
        values, controls = checked.found.double(), _checked(arena, arena.controls).found.double()
    else:
        values, controls = getattr(found.rows, metric), getattr(guess.rows, metric)
    return Outcome(
        type(attack).quantity,
        metric,
        values,
        controls,
        cluster_sums(torch.cat([g.clusters for g in games]), values, controls),
        columns,
        broken,
        breakdown(games, values),
    )


def _checked(arena: Arena, results: Sequence[Reconstruction]) -> Claims:
    parts = zip(results, arena.games, arena.views, strict=True)
    return Claims.pool([check_claims(result, game, view) for result, game, view in parts])


def _mean(values: Tensor) -> float:
    return float(values.mean().item())


def primary_metric(attack: Attack, kind: FeatureKind, public: PublicFacts) -> str:
    """Return the metric that the advantage is computed on: the attack's own, with two exceptions.

    Where a defense alters messages (noise, clipping, rounding, features left out), F1 stands for the rate of exact
    rows: that falls to nothing as soon as one entry of every row is wrong, long before the row is protected. And cosine
    stands for F1 where features are real-valued, since any dense guess finds all non-zero entries of dense rows.
    """
    metric = type(attack).metric
    if metric == "exact_rate" and (public.noise or not _ALTERED.isdisjoint(public.defense_parameters)):
        metric = "f1"
    return "cosine" if metric == "f1" and kind is FeatureKind.REAL else metric


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
