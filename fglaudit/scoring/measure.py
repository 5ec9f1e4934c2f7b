"""One attack by one observer, measured: run, self-tested, scored beside its control."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import torch

from fglaudit.adversary.local_reports import as_sent, attack_reports
from fglaudit.finding import Finding, Status
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.payloads import Ciphertexts
from fglaudit.rng import derive
from fglaudit.scoring.arena import Arena, Outcome
from fglaudit.scoring.score_inferences import inference_outcome, questions
from fglaudit.scoring.score_reconstructions import reconstruction_outcome
from fglaudit.scoring.stats import UNINFORMATIVE, advantage_interval
from fglaudit.structure import NotStatedError
from fglaudit.view import FEATURE_ROWS, View


@dataclass(frozen=True)
class Measurement:
    """What one observer x attack came to: the finding, and what the record keeps beside it."""

    finding: Finding
    clusters: list[list[float]] = field(default_factory=list)
    breakdown: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(attack: Attack, blank: Finding, arena: Arena, device: torch.device) -> Measurement:
    """Run one attack on every view of an observer, self-test it, and score it beside its control.

    Whatever goes wrong with the attack ends in the row: one attack's failure must not cost the others (rule 7).

    Args:
        blank: the row's identity and what training came to.
    """
    try:
        inapplicable = _inapplicable(attack, arena)
        if inapplicable is not None:
            return Measurement(replace(blank, status=Status.NOT_APPLICABLE, reason=inapplicable))
        outcome, seconds = _outcome(attack, arena, device)
    except NotStatedError as error:
        return Measurement(replace(blank, status=Status.NOT_APPLICABLE, reason=str(error)))
    except Exception as error:
        return Measurement(replace(blank, status=Status.FAILED, reason=f"{type(error).__name__}: {error}"))
    return _finding(replace(blank, seconds_attack=seconds), outcome, arena.seed)


def _inapplicable(attack: Attack, arena: Arena) -> str | None:
    """Return why there is nothing to measure, or None."""
    if type(attack).quantity == "features":
        if not any(len(game.targets) for game in arena.games):
            return "no node's features reach this observer: nothing that depends on them is sent"
    elif isinstance(asked := questions(type(attack).quantity, arena), str):
        return asked
    return next(
        (why for view in arena.views if (why := _unreadable(attack, view) or _unsupported(attack, view)) is not None),
        None,
    )


def _unsupported(attack: Attack, view: View) -> str | None:
    """Return why ``attack`` cannot work on what the protocol computed with: randomised rows are real-valued."""
    noise = view.public.noise.get(FEATURE_ROWS)
    alone = noise is None or noise.distribution in attack.reads_noisy_rows
    return attack.unsupported(view if alone else as_sent(view))


def _unreadable(attack: Attack, view: View) -> str | None:
    """Return which payload of those that ``attack`` needs the observer has as ciphertexts only, or None."""
    if Ciphertexts in type(attack).also_reads:
        return None
    for payload in type(attack).consumes:
        if payload.__name__ in view.public.sealed and next(iter(view.messages.of(payload)), None) is None:
            return f"{view.observer.name} sees ciphertexts only of {payload.__name__}, and holds no key"
    return None


def _outcome(attack: Attack, arena: Arena, device: torch.device) -> tuple[Outcome, float]:
    """Run ``attack`` and score it; also return the seconds it ran."""
    name = type(attack).name
    start = time.perf_counter()
    results = [
        attack_reports(attack, v, derive(arena.seed, "attack", name, v.observer.name), device) for v in arena.views
    ]
    seconds = time.perf_counter() - start
    if type(attack).quantity == "features":
        rebuilt = [r for r in results if isinstance(r, Reconstruction)]
        if len(rebuilt) == len(results):
            return reconstruction_outcome(attack, arena, rebuilt, device), seconds
    else:
        inferred = [r for r in results if isinstance(r, Inference) and r.quantity == type(attack).quantity]
        if len(inferred) == len(results):
            return inference_outcome(attack, arena, inferred, device), seconds
    raise TypeError(f"the attack says it infers {type(attack).quantity} and returned something else")


def _finding(blank: Finding, outcome: Outcome, seed: int) -> Measurement:
    point, low, high, kind = advantage_interval(torch.tensor(outcome.clusters), derive(seed, "bootstrap"))
    control = float(outcome.controls.mean().item())
    reason = "uninformative: the control alone reaches 0.99" if control >= UNINFORMATIVE else ""
    columns: dict[str, object] = dict(outcome.columns)
    finding = replace(
        blank,
        status=Status.BROKEN_ATTACK if outcome.broken else Status.OK,
        reason=outcome.broken or reason,
        targets=len(outcome.values),
        metric=outcome.metric,
        quantity=outcome.quantity,
        value=float(outcome.values.mean().item()),
        control=control,
        advantage=point,
        advantage_low=low,
        advantage_high=high,
        interval=kind,
        **columns,  # type: ignore[arg-type]
    )
    return Measurement(finding, outcome.clusters, outcome.breakdown)
