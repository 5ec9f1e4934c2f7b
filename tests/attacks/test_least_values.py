"""Numbers that an attack cannot work with are refused where it is built, not where it crashes."""

from __future__ import annotations

import dataclasses

import pytest

from fglaudit import registry
from fglaudit.errors import FglauditError


@pytest.mark.parametrize("name", registry.names("attack"))
def test_no_number_of_an_attack_may_be_negative(name: str) -> None:
    for field in dataclasses.fields(registry.load("attack", name)):
        if type(field.default) in (int, float):
            with pytest.raises(FglauditError):
                registry.build("attack", name, {field.name: -1 if isinstance(field.default, int) else -1.0})


def test_what_is_too_small_is_named_with_its_bound() -> None:
    with pytest.raises(FglauditError, match="needs starts >= 1; got 0; raise it"):
        registry.build("attack", "representation-inversion", {"starts": 0})
