"""YAML text of any content ends in plain data of bounded size or in one message; plain data are read as they are."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fglaudit.errors import MESSAGE, FglauditError
from fglaudit.files import limits
from fglaudit.suite.embedded import embedded
from fglaudit.suite.reading import parse
from fglaudit.suite.yaml_text import read_yaml

FRAGMENTS = st.sampled_from(
    [
        *(
            "a",
            "b: ",
            "- ",
            "? ",
            ": ",
            "\n",
            "\n  ",
            "[",
            "]",
            "{",
            "}",
            ", ",
            "&a ",
            "*a",
            "<<: ",
            "!",
            "!!int ",
            "!!float ",
        ),
        *(
            "!!bool ",
            "!!null ",
            "!!str ",
            "!!binary ",
            "!!timestamp ",
            "!!set ",
            "!!omap ",
            "!!python/name:os.system ",
            "|\n",
            ">\n",
        ),
        *(
            "'",
            '"',
            "#",
            "%YAML 1.1\n",
            "---\n",
            "...\n",
            "0x",
            "0b_",
            "1:30",
            "2001-13-45",
            ".inf",
            ".nan",
            "1e999",
            "9" * 5000,
        ),
        *('"\\ud800"', '"\\0"', "\t", "\x85", "\u2028", "~", "null", "true", "=", "<<", "1_0", "0o8", "[" * 40),
    ]
)
NUMBER = re.compile("[-+]?[0-9.]+[eE][-+]?[0-9]+|0o[0-7]+")
"""Text that YAML 1.1 leaves without quotes as it is written below, and that YAML 1.2 reads as numbers."""
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-limits.INTEGER, limits.INTEGER)
    | st.floats(allow_nan=False)
    | st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), max_codepoint=0xFFFF), max_size=20).filter(
        lambda text: text.isprintable() and not NUMBER.fullmatch(text)
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdefgh", max_size=5), inner, max_size=4),
    max_leaves=20,
)


def outcome(text: str) -> Any:
    """Return the data of ``text``, or its message; anything else that is raised fails the test."""
    try:
        return read_yaml(text)
    except FglauditError as error:
        message = str(error)
        assert message.isprintable() and len(message) <= MESSAGE and message.count(";") >= 2, message
        return message


def plain(value: Any, depth: int = 0) -> int:
    """Return how many values ``value`` holds; fails on what is no plain data or too deep."""
    assert depth <= limits.SUITE_DEPTH
    if isinstance(value, dict):
        assert all(type(key) is str for key in value)
        return 1 + sum(1 + plain(part, depth + 1) for part in value.values())
    if isinstance(value, list):
        return 1 + sum(plain(part, depth + 1) for part in value)
    assert value is None or type(value) in (bool, int, float, str)
    assert not isinstance(value, int) or abs(value) <= limits.INTEGER
    assert not isinstance(value, str) or len(value) <= max(limits.TEXT, MESSAGE)
    return 1


@settings(deadline=None, max_examples=250)
@given(st.lists(FRAGMENTS, max_size=14).map("".join) | st.text(max_size=60))
@example("a: !!int ''")
@example("? [1]\n: 2")
@example("&a [*a]")
@example("a: &a {<<: *a}")
@example("<<: [1]")
def test_any_text_is_plain_data_or_one_message(text: str) -> None:
    assert plain(outcome(text)) <= limits.SUITE_VALUES


@settings(deadline=None, max_examples=200)
@given(PLAIN, st.booleans())
def test_plain_data_are_read_as_they_were_written(data: Any, flow: bool) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True, width=10**6)
    assert read_yaml(text) == data


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_damaged_suite_is_plain_data_or_one_message(data: st.DataObject) -> None:
    text = embedded()[data.draw(st.sampled_from(["quickstart", "fedgt", "gfl-appnp"]))]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 30, len(text))))
    outcome(text[:start] + data.draw(FRAGMENTS | st.text(max_size=5)) + text[end:])


@pytest.mark.parametrize("width", [2, 9])
@pytest.mark.parametrize("merge", [False, True])
def test_aliases_count_as_if_written_out(width: int, merge: bool) -> None:
    def bomb(levels: int) -> str:
        lines = ["a0: &a0 {k: [x, x]}"]
        for i in range(levels):
            if merge:
                lines.append(
                    f"a{i + 1}: &a{i + 1} {{<<: *a{i}, " + ", ".join(f"k{j}: *a{i}" for j in range(width)) + "}"
                )
            else:
                lines.append(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * width)}]")
        return "\n".join(lines)

    small = read_yaml(bomb(2))
    assert plain(small) > 2 * width and small["a1"] is not small["a0"]
    with pytest.raises(FglauditError, match="aliases written out"):
        read_yaml(bomb(20))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nest"),
        ("- " * 100_000, "nest"),
        ("a:\n" + "".join(" " * i + "b:\n" for i in range(1, 400)), "nest"),
        ("x: [" + "1," * 60_000 + "]", "keys and values"),
        ("x: " + "9" * 5_000, "characters"),
        ("x: " + "9" * 1_000, "2\\^63"),
        ("x: 0x" + "f" * 99, "2\\^63"),
        ("x: '" + "a" * 5_000 + "'", "characters"),
        ("#" * 10**6, "characters"),
        ("a: *b", "undefined alias"),
        ("a: 1\n---\nb: 2", "another document"),
        ("{a: 1, a: 2}", "repeated at line 1"),
        ("{[1]: 2}", "key must be text"),
        ("{1: 2}", "key must be text"),
        ("a: !!timestamp 2001-01-01", "tag"),
    ],
)
def test_what_is_beyond_a_limit_is_refused(text: str, words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        parse(text, "bad.yaml")


def test_the_types_are_those_of_yaml_1_2() -> None:
    text = "[yes, on, 010, 0o17, 0x1F, 1:30, 2001-01-01, 1_000, 1e-5, .5, -.inf, 5., '5', ~, ]"
    assert read_yaml(text) == [
        "yes",
        "on",
        10,
        15,
        31,
        "1:30",
        "2001-01-01",
        "1_000",
        1e-5,
        0.5,
        -math.inf,
        5.0,
        "5",
        None,
    ]
    assert read_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}") == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}
