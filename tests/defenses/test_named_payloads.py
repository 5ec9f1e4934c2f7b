"""Payloads that a defense is to work on are named in a list; a text was read letter by letter."""

from __future__ import annotations

import dataclasses

import pytest

from fglaudit import registry
from fglaudit.errors import FglauditError

LISTED = [
    name
    for name in registry.names("defense")
    for field in dataclasses.fields(registry.load("defense", name))
    if field.name == "on" and isinstance(field.default, tuple)
]


@pytest.mark.parametrize("name", LISTED)
def test_one_text_is_no_list_of_payloads(name: str) -> None:
    with pytest.raises(FglauditError) as found:
        registry.load("defense", name)(on="ModelUpdate")
    assert str(found.value) == "payloads are given as a list; got the text 'ModelUpdate'; write ('ModelUpdate',)"


@pytest.mark.parametrize("name", ["joint-noise", "clipping"])
def test_one_number_is_no_list_of_clips(name: str) -> None:
    with pytest.raises(FglauditError, match=r"clips are a list, .*; got 1\.0; write \(1\.0,\)"):
        registry.load("defense", name)(clip=1.0)
    assert len(LISTED) >= 7
