"""What ``show`` adds of attacks: which facts they allow for, asked of them, as the column ``adapted`` says it later."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fglaudit import registry
from fglaudit.catalog import facts_allowed
from fglaudit.catalog.allowed_facts import EXAMPLES, allowed, messages
from fglaudit.cli import main
from fglaudit.facts import KINDS, ROWS, Additive, Clipped, Field
from fglaudit.interfaces import Attack


def attack(name: str) -> Attack:
    made: Attack = registry.build("attack", name, {})
    return made


def test_every_fact_that_can_be_stated_is_asked_about() -> None:
    of_all = [examples for target, made in EXAMPLES.values() for examples in made(target)]
    of_all += messages(Field("NeighborSums"))
    asked = {type(fact).__name__ for examples in of_all for fact in examples.values()}
    assert asked == set(KINDS) - {"Foreign"}, "a new fact needs an example"


def test_it_is_what_the_attack_says() -> None:
    lines = allowed(attack("subset-sum"))
    assert "  rows: Clipped (L1 or L2 per row), KeptColumns" in lines
    assert not attack("subset-sum").models(Additive(ROWS, "gaussian", 1.0))
    assert attack("subset-sum").models(Clipped(ROWS, "L2", 1.0, "row"))
    assert not attack("subset-sum").models(Clipped(ROWS, "elementwise", 1.0, "row"))
    assert "  rows: all that is built in" in allowed(attack("loss-threshold"))
    up = next(line for line in allowed(attack("update-shares")) if "sent up" in line)
    assert "Additive (gaussian or laplace)" in up and "other noise" not in up
    assert len(allowed(attack("learned-inversion"))) == 1


@pytest.mark.parametrize("name", registry.names("attack"))
def test_every_attack_can_be_asked(name: str) -> None:
    found = facts_allowed(name)
    assert found[0].removeprefix("# ").startswith("allows for") and "not known" not in found[0]


def test_the_command_prints_it_and_a_suite_of_that_name_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(name: str) -> str:
        with pytest.raises(SystemExit) as done:
            main(["show", name])
        assert not done.value.code
        return capsys.readouterr().out

    assert "allows for these facts, by what they are about:\n  rows: Clipped" in shown("subset-sum")
    assert "infers: features" in shown("subset-sum") and "allows for" not in shown("gaussian")
    assert yaml.safe_load(shown("update-members"))["name"] == "update-members"
    assert "# allows for" in shown("update-members")


def test_an_attack_that_cannot_be_asked_says_why(tmp_path: Path) -> None:
    (tmp_path / "needy.py").write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from fglaudit.interfaces import Attack\nfrom fglaudit.payloads import NeighborSums\n"
        "@dataclass(frozen=True)\nclass Needy(Attack):\n    name: ClassVar[str] = 'needy'\n"
        "    consumes: ClassVar = (NeighborSums,)\n    metric: ClassVar[str] = 'f1'\n    steps: int\n"
        "    def run(self, view, *, rng, device):\n        raise NotImplementedError\n"
    )
    (line,) = facts_allowed(f"{tmp_path / 'needy.py'}:Needy")
    assert line.startswith("allows for: not known, as it could not be asked with its defaults: TypeError")
