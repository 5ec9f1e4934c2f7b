"""No attack says that it allows for a fact of a kind that it cannot know."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from recordings import attack

from fglaudit.attacks import ATTACKS
from fglaudit.facts import EDGES, GRADIENTS, ROWS, Additive, Fact, Field, Foreign, Target


@dataclass(frozen=True)
class Odd(Fact):
    """A plugin's own fact."""


@dataclass(frozen=True)
class OddNoise(Additive):
    """A plugin's own noise, which depends on the value."""


@pytest.mark.parametrize("name", ATTACKS)
def test_unknown_facts_are_modelled_by_nobody(name: str) -> None:
    tried = attack(name)
    kind = type(tried)
    read = [Field(payload.__name__) for payload in (*kind.consumes, *kind.also_reads, *kind.computed_from)]
    targets: list[Target] = [ROWS, EDGES, GRADIENTS, *read]
    for target in targets:
        facts: list[Fact] = [Odd(target), OddNoise(target, "gaussian", 1.0), Foreign(target, "Odd")]
        assert not [fact for fact in facts if tried.models(fact)]
