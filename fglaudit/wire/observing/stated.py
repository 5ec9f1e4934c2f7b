"""What is stated of the values that go through a hook, as those need it who call the hook again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fglaudit.facts import Additive, Correlated, Fact, Field, Masked, Randomised, Rounded, Target
from fglaudit.facts.explaining import Expected
from fglaudit.facts.residuals import Shape
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import is_repeated

MANY = 8
"""Values that continuous noise does not leave alike in two draws; answers and roundings may be by chance."""
Values = Mapping[str, Tensor]
Hook = Callable[[DefenseSession, Values, torch.Generator], tuple[Any, Values]]
"""Calls a hook of a session on values by name; returns what it returned, and its values by name."""


@dataclass(frozen=True)
class Stated:
    """What is stated of one of the values that go through a hook.

    Attributes:
        name: of the value.
        facts: in the order in which they apply.
        noise: what is noise of what left, given what entered: its values, their slack and the stated shape; None where
            that cannot be told.
        expects: what facts make of what entered, noise left out; None where answers are not looked at.
        part: entries of the leading axis that they are about; None: all.
        comparable: whether noise on other values can be compared with it, entry by entry.
    """

    target: Target
    name: str
    facts: tuple[Fact, ...]
    noise: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Shape] | None]
    expects: Callable[[Tensor], Expected] | None = None
    part: Tensor | None = None
    comparable: bool = True


def stepped(facts: Sequence[Fact]) -> bool:
    """Whether equal values may leave by chance: rounding, masks, answers."""
    return any(isinstance(f, Rounded | Masked | Randomised) for f in facts)


def unlike(facts: Sequence[Fact]) -> bool:
    """Whether noise is stated to be something else than one independent draw on every value."""
    return any(isinstance(f, Correlated | Masked | Randomised) for f in facts)


def draws_at_random(facts: Sequence[Fact]) -> bool:
    """Whether anything is stated to be drawn."""
    random = any(isinstance(f, Additive | Randomised) for f in facts)
    return random or any(isinstance(f, Rounded) and f.stochastic for f in facts)


def one_message(target: Target, *values: Tensor) -> bool:
    """Whether each of ``values`` [P, ...] is one message of the server to all its receivers: released once, with one
    draw of noise."""
    if all(is_repeated(value) for value in values):
        return True
    down = isinstance(target, Field) and target.direction == "down"
    return down and all(value.dim() > 1 and bool((value == value[:1]).all()) for value in values)


def own(value: Tensor) -> Tensor:
    """Return ``value`` in memory of its own; a broadcast stays one."""
    return value[:1].clone().expand_as(value) if is_repeated(value) else value.clone()
