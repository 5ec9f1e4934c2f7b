"""Payloads that a defense is to work on are named in a list; a text was read letter by letter."""

from __future__ import annotations

import dataclasses

import pytest

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.payloads.base import payload_types
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph

LISTED = [
    name
    for name in registry.names("defense")
    for field in dataclasses.fields(registry.load("defense", name))
    if field.name == "on" and isinstance(field.default, tuple)
]


@pytest.mark.parametrize("name", LISTED)
def test_one_text_is_no_list_of_payloads(name: str) -> None:
    with pytest.raises(FglauditError, match=r"'on' must be a list.*; got 'ModelUpdate' .*; write \['ModelUpdate'\]"):
        registry.load("defense", name)(on="ModelUpdate")
    assert len(LISTED) >= 7


def test_nor_is_one_text_where_a_plugin_asks_for_payloads() -> None:
    with pytest.raises(FglauditError, match=r"got the text 'ModelUpdate'; write \('ModelUpdate',\)"):
        payload_types("ModelUpdate")


@pytest.mark.parametrize("name", ["joint-noise", "clipping"])
def test_one_number_is_no_list_of_clips(name: str) -> None:
    with pytest.raises(FglauditError, match=r"'clip' must be a list, each entry a number; got 1\.0 .*; write \[1\.0\]"):
        registry.load("defense", name)(clip=1.0)


@pytest.mark.parametrize("name", ["gaussian", "clipped-noise", "joint-noise", "quantisation", "clipping"])
def test_what_is_sent_instead_is_named(name: str) -> None:
    """Why nothing was rounded was told a user whose protocol sends sums, and not how to round these."""
    on = "Jacobians" if name in ("gaussian", "clipped-noise") else ["Jacobians"]
    clip = {"clip": [1.0]} if name in ("joint-noise", "clipping") else {}
    context = FedGCN(hops=1).context(example_graph())
    why = registry.build("defense", name, {"on": on, **clip}).unsupported(context)
    assert "Jacobians with these settings" in why and why.endswith("; the key on can name: NeighborSums")
