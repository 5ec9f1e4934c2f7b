"""Whatever value stands at whatever place of a suite, the suite resolves or one bounded message says what is wrong."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fglaudit import registry
from fglaudit.datasets import CsbmOptions, CsbmTask, DatasetSpec
from fglaudit.errors import ECHO, MESSAGE, FglauditError, shown, unknown
from fglaudit.files import limits
from fglaudit.partition import PartitionSpec
from fglaudit.suite.overrides import parse_seeds
from fglaudit.suite.reading import parse
from fglaudit.suite.suite import resolve

BASE = """
name: small
datasets: [{name: csbm-cora}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
attacks: [row-space]
"""
NUMBERS = (0, -1, 1, 2, 65, 1_001, 10**6 + 1, 2**31, limits.INTEGER, -limits.INTEGER)
FLOATS = (0.0, -0.0, 0.5, 1e-308, 1e308, -1e308, float("inf"), float("-inf"), float("nan"))
LEAVES = st.sampled_from(
    [
        *NUMBERS,
        *FLOATS,
        None,
        True,
        False,
        "",
        " ",
        "x",
        "server",
        "client:0",
        "client:" + "9" * 50,
        "~nobody/x",
        "/dev/zero",
        "a" * 2_000,
        "[red]x[/red]",
        "é",
        "x.py:Y",
        "/dev/stdin.py:Y",
        "NeighborSums",
        "1e5",
        "0x10",
    ]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(["name", "path", "csbm", "nodes", "x", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)
PLUGINS = [(f"{kind}s", name) for kind in registry.KINDS for name in registry.names(kind)]
KEYS = (*parse(BASE, "small"), "server", "defenses", "record", "empirical", "seeds", "plugins", "other")


def fields_of(key: str, name: str) -> list[str]:
    return [f.name for f in dataclasses.fields(registry.load(key[:-1], name))]


def outcome(data: dict[str, Any]) -> str:
    """Return the message, empty for a suite that resolves; anything else that is raised fails the test."""
    try:
        suite = resolve(data, "small")
    except FglauditError as error:
        message = str(error)
        assert message.isprintable() and len(message) <= MESSAGE, message
        assert ";" in message or "(known: " in message, message
        return message
    assert [cell.hash() for cell in suite.cells()[:3]]
    return ""


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(KEYS), VALUES)
def test_any_value_of_any_key(key: str, value: Any) -> None:
    outcome({**parse(BASE, "small"), key: value})


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_any_value_of_any_field_of_any_plugin(data: st.DataObject) -> None:
    key, name = data.draw(st.sampled_from(PLUGINS))
    names = fields_of(key, name) or ["x"]
    arguments = data.draw(st.dictionaries(st.sampled_from(names), VALUES, min_size=1, max_size=2))
    outcome({**parse(BASE, "small"), key: [{"name": name, **arguments}]})


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_value_of_any_field_of_data_and_partitions(data: st.DataObject) -> None:
    cls, key, wrap = data.draw(
        st.sampled_from(
            [
                (DatasetSpec, "datasets", lambda v: {"name": "csbm", **v}),
                (CsbmOptions, "datasets", lambda v: {"name": "csbm", "csbm": v}),
                (CsbmTask, "datasets", lambda v: {"name": "csbm-sc", "task": v}),
                (PartitionSpec, "partitions", lambda v: {"scheme": "metis", **v}),
            ]
        )
    )
    names = [f.name for f in dataclasses.fields(cls)]
    outcome(
        {**parse(BASE, "small"), key: [wrap(data.draw(st.dictionaries(st.sampled_from(names), VALUES, min_size=1)))]}
    )


@pytest.mark.parametrize(("key", "name"), PLUGINS)
def test_whole_numbers_have_a_limit_wherever_they_stand(key: str, name: str) -> None:
    cls = registry.load(key[:-1], name)
    hints = typing.get_type_hints(cls)
    for field in [f.name for f in dataclasses.fields(cls) if hints[f.name] is int]:
        most = limits.SIZES.get(field, limits.MOST)
        if most < limits.INTEGER:
            message = outcome({**parse(BASE, "small"), key: [{"name": name, field: most + 1}]})
            assert f"at most {most}; got {most + 1}" in message, (field, message)


def test_a_plugin_may_state_a_limit_of_its_own() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine:
        steps: int = dataclasses.field(default=1, metadata={"most": 10**12})

    assert registry.construct(Mine, "plugin", {"steps": 10**12}).steps == 10**12
    with pytest.raises(FglauditError, match="at most"):
        registry.construct(Mine, "plugin", {"steps": 10**12 + 1})


def test_grids_have_a_limit() -> None:
    many = list(range(limits.CELLS + 1))
    assert "cells; got" in outcome({**parse(BASE, "small"), "seeds": many})
    observers = [{"parties": ["server"], "auxiliary": i / 3000} for i in range(2_000)]
    assert "observers x attacks; got" in outcome(
        {**parse(BASE, "small"), "observers": observers, "seeds": many[:2_000]}
    )
    with pytest.raises(FglauditError, match="--seeds may name"):
        parse_seeds("0-9999999999")
    for text in ("9" * 5_000, "٣", "0-" + "9" * 30):
        with pytest.raises(FglauditError, match="--seeds"):
            parse_seeds(text)


@settings(deadline=None)
@given(VALUES | st.integers() | st.text() | st.binary())
def test_quoted_values_are_one_short_line(value: Any) -> None:
    for quoted in (value, [value] * 100, {str(i): value for i in range(100)}):
        assert shown(quoted).isprintable() and len(shown(quoted)) <= ECHO


def test_quoted_values_may_be_of_any_size() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (10**5_000, -(10**5_000), "a" * 10**6, nested, "\x1b[31m", "\ud800"):
        assert len(shown(value)) <= ECHO and shown(value).isprintable()
    assert len(str(unknown("key", "a" * 10**6, ["alpha", "beta"]))) < 500
    assert str(FglauditError("a\nb\x1b; c")) == "a b\\x1b; c"
    cut = str(FglauditError("rule; " + "x" * 10**6 + "; fix"))
    assert cut.startswith("rule; ") and cut.endswith("; fix") and len(cut) <= MESSAGE


@pytest.mark.parametrize(
    ("place", "value", "rule"),
    [
        (("protocols", "learning_rate"), "nan", "a number; got 'nan' (text)"),  # what YAML makes of a bare nan
        (("protocols", "rounds"), "3", "a whole number; got '3' (text); write it without quotes"),
        (("protocols", "rounds"), True, "a whole number; got True (true or false)"),
        (("attacks", "fpr"), "0.01", "a number or null; got '0.01' (text); write it without quotes"),
        (("defenses", "clip"), 2.0, "a list, each entry a number; got 2.0 (a number); write [2.0]"),
    ],
)
def test_text_in_a_suite_is_no_number(place: tuple[str, str], value: Any, rule: str) -> None:
    name = {"protocols": "fedgcn", "attacks": "lira", "defenses": "clipping"}[place[0]]
    data = {**parse(BASE, "small"), place[0]: [{"name": name, place[1]: value}]}
    assert f"{place[0]}[0]: " in outcome(data) and f"field {place[1]!r} must be {rule}" in outcome(data)


@pytest.mark.parametrize("value", [1e300, -1e39])
def test_a_number_that_single_precision_does_not_hold_is_refused_before_training(value: float) -> None:
    data = {**parse(BASE, "small"), "protocols": [{"name": "fedgcn", "learning_rate": value}]}
    assert f"field 'learning_rate' may be at most 3.4e+38; got {value}; lower it" in outcome(data)


@pytest.mark.parametrize("value", ["no", "off", 0])
def test_what_stands_for_no_in_other_tongues_of_yaml_is_no_flag(value: Any) -> None:
    data = {**parse(BASE, "small"), "protocols": [{"name": "appnp", "truncated": value}]}
    assert "must be true or false" in outcome(data) and outcome(data).endswith("; write false")
    assert outcome({**parse(BASE, "small"), "empirical": value}).endswith(f"got {value!r}; write false")


@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("other", "partitions")])
@pytest.mark.parametrize("value", [None, [], 3, [3], {"a": 3}, [[]]])
def test_rules_of_keys_are_in_the_words_of_the_file(key: str, value: Any) -> None:
    said = outcome({**parse(BASE, "small"), key: value})
    assert "Input" not in said and "validation" not in said and "valid dictionary" not in said
