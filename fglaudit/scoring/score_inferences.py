"""Inferences scored against the truth and beside a guess from side knowledge alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.adversary.local_reports import attack_reports
from fglaudit.interfaces import Attack, Inference
from fglaudit.quantities import Question, Scores, quantity
from fglaudit.rng import derive, split
from fglaudit.scoring.arena import Arena, Outcome
from fglaudit.scoring.game import cluster_sums
from fglaudit.scoring.selftest import NOISE_AT_MOST, PLAIN_LEAK_AT_LEAST, NoiseMessages
from fglaudit.view import View

NOISE_DRAWS = 5
"""How often an inference may try again on fresh noise before it counts as broken."""


def questions(name: str, arena: Arena) -> list[Question] | str:
    """Return what every member of the observer is asked, or why there is nothing to ask."""
    asked = [quantity(name).ask(truth) for truth in arena.truths]
    refused = next((question for question in asked if isinstance(question, str)), None)
    return refused if refused is not None else [question for question in asked if isinstance(question, Question)]


def inference_outcome(attack: Attack, arena: Arena, results: Sequence[Inference], device: torch.device) -> Outcome:
    """Score ``results``, one per view of ``arena``, and self-test the attack on the first view."""
    kind = quantity(type(attack).quantity)
    asked = questions(kind.name, arena)
    assert not isinstance(asked, str)  # such an attack does not run at all
    guesses = [kind.guess(view, question.subjects) for view, question in zip(arena.views, asked, strict=True)]
    found = [kind.score(q, r, g) for q, r, g in zip(asked, results, guesses, strict=True)]
    control = [kind.score(q, g, g) for q, g in zip(asked, guesses, strict=True)]
    values, controls = torch.cat([s.values for s in found]), torch.cat([s.values for s in control])
    columns = _pooled(found)
    columns |= {
        f"control_{name}": value for name, value in _pooled(control).items() if name in ("auc", "cosine", "exact_rate")
    }
    return Outcome(
        quantity=kind.name,
        metric=kind.metric,
        values=values,
        controls=controls,
        clusters=cluster_sums(torch.cat([s.clusters for s in found]), values, controls),
        columns=columns,
        broken=_self_test(
            attack, arena.views[0], asked[0], guesses[0], derive(arena.seed, "self-test", attack.name), device
        ),
    )


def _pooled(scores: Sequence[Scores]) -> dict[str, float | None]:
    """Return the means of the columns over the views, weighted by what was scored."""
    total = sum(len(s.values) for s in scores)
    return {name: sum(s.columns[name] * len(s.values) for s in scores) / total for name in scores[0].columns}


def _standard_error(values: Tensor, clusters: Tensor) -> float:
    """Return the standard error of the mean of ``values`` [V], which depend on each other within ``clusters`` [V]."""
    centred = values - values.mean()
    _, index = torch.unique(clusters, return_inverse=True)
    sums = torch.zeros(int(index.max().item()) + 1, dtype=values.dtype).index_add_(0, index, centred)
    return float(sums.square().sum().sqrt().item()) / len(values)


def _self_test(
    attack: Attack, view: View, question: Question, guess: Inference, rng: torch.Generator, device: torch.device
) -> str | None:
    """Return what is wrong with ``attack``, or None (rule 6): it must see what is planted and nothing in noise.

    On noise an attack may beat its control by chance: three standard errors are allowed beside the usual margin. These
    are too small where few clients make all targets alike, so only an attack that exceeds them on every draw is broken.
    """
    kind = quantity(type(attack).quantity)
    planted = attack.plant(view, rng=split(rng, "plant"))
    result = attack.run(planted.view, rng=split(rng, "planted"), device=device)
    if not isinstance(result, Inference):
        return f"self-test: it returned no inference of {kind.name}"
    problem = kind.planted(planted)
    found = float(kind.score(problem, result, kind.guess(planted.view, problem.subjects)).values.mean().item())
    if found < PLAIN_LEAK_AT_LEAST:
        return f"self-test: on a planted plain leak its {kind.metric} was {found:.3f}, not {PLAIN_LEAK_AT_LEAST:g}"
    control = kind.score(question, guess, guess).values
    least = float("inf")
    for _ in range(NOISE_DRAWS):
        seed = int(torch.randint(2**31, (1,), generator=rng).item())
        ids_below = view.public.num_nodes if type(attack).reads_ids else 0
        blind = dataclasses.replace(view, messages=NoiseMessages(view.messages, seed, ids_below))
        result = attack_reports(attack, blind, split(rng, "noise"), device)
        if not isinstance(result, Inference):
            return f"self-test: it returned no inference of {kind.name}"
        scored = kind.score(question, result, guess)
        excess = scored.values - control
        least = min(least, float(excess.mean().item()))
        if least <= NOISE_AT_MOST + 3 * _standard_error(excess, scored.clusters):
            return None
    return (
        f"self-test: on every draw of noise it beat its control, by {least:.3f} at least; it reads something not sent"
    )
