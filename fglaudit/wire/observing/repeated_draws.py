"""Many draws of the noise of one message, looked at together: which of its numbers depend on one another."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.facts import Additive, Fact, Memoised, Scaled, Target
from fglaudit.facts.residuals import Shape, Spending
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import is_repeated
from fglaudit.rng import copied, split
from fglaudit.wire.observing.alike_rows import same_rows
from fglaudit.wire.observing.dependent_draws import dependent_draws
from fglaudit.wire.observing.draw_collisions import drawn_twice, fixed_bits
from fglaudit.wire.observing.stated import MANY, Hook, Stated, Values, own, stepped, unlike

FEWEST_DRAWS = 16
"""Draws of few messages without which they are not looked at, and most draws of gradients that are sampled."""
SEEDS, MOST_OF_SEEDS = 4000, 2**23
"""Draws of few messages, among which a seed of one in a million comes twice, and values in all of them."""
_MOST_COMPARED, _PER_NUMBER = 400, 3
"""Of these draws, how many are asked whether their numbers depend on one another, which takes longer: at least, and for
every number, so that no direction of a message may be bare."""
_OVER_SLACK = 2.0**10
"""How many times what arithmetic may add noise must be, so that two draws are not the same by rounding."""


def of_few(
    session: DefenseSession,
    small: tuple[Hook, Values],
    asked: Sequence[Stated],
    rng: torch.Generator,
    spending: Spending,
) -> dict[Target, str] | None:
    """Return what is wrong with many draws of ``small``, by target: two that are the same, as draws from few seeds are,
    or numbers that depend on others. None where the hook cannot be called on it."""
    asked = [a for a in asked if any(isinstance(f, Additive) for f in a.facts) and not stepped(a.facts)]
    hook, given = small
    asked = [a for a in asked if given[a.name].numel() >= MANY]
    count = min(SEEDS, MOST_OF_SEEDS // max(1, sum(value.numel() for value in given.values())))
    if not asked or count < FEWEST_DRAWS:
        return {}
    drawn: dict[Target, list[Tensor]] = {about.target: [] for about in asked}
    for number in range(count):
        values = {name: own(value) for name, value in given.items()}
        try:
            _, left = hook(copy.deepcopy(session), values, split(copied(rng), f"seed {number}"))
        except Exception:  # it may expect messages of all
            return None
        for about in asked:
            drawn[about.target].append(left[about.name])
    found = {}
    for about in asked:
        entered, draws = given[about.name], drawn[about.target]
        if is_repeated(entered):
            entered, draws = entered[:1], [draw[:1] for draw in draws]
        noise = about.noise(entered, draws[0])
        if noise is None or not noise[2].scale > _OVER_SLACK * float(noise[1].max()):
            continue
        if drawn_twice(draws):
            found[about.target] = f"noise of few seeds: the same came twice in {count} draws"
        elif (fixed := fixed_bits(draws[:_MOST_COMPARED], noise[2].scale, _offset(about.facts), spending)) is not None:
            found[about.target] = fixed
        elif about.part is None and not unlike(about.facts) and not any(isinstance(f, Memoised) for f in about.facts):
            most = max(_MOST_COMPARED, _PER_NUMBER * entered.numel())
            parts = [part[:2] for part in (about.noise(entered, draw) for draw in draws[:most]) if part is not None]
            noises, slack = torch.stack([part[0] for part in parts]), torch.stack([part[1] for part in parts])
            if (wrong := strange_draws(noises, slack, noise[2], spending)) is not None:
                found[about.target] = wrong
    return found


def _offset(facts: Sequence[Fact]) -> float:
    """Return what ``facts`` add to values after their noise."""
    offset = 0.0
    for fact in facts:
        if isinstance(fact, Additive):
            offset = 0.0
        elif isinstance(fact, Scaled):
            offset = fact.offset + fact.factor * offset
    return offset


def strange_draws(draws: Tensor, slack: Tensor, shape: Shape, spending: Spending) -> str | None:
    """Return why ``draws`` [D, n, F] of the noise of one message are not independent numbers each, or None."""
    near, flat = float(slack.max()), draws.flatten(0, 1)
    return same_rows(flat, near, shape, spending) or dependent_draws(draws, slack, shape, spending)
