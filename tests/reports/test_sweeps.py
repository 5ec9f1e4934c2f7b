"""Settings that differ in one number are named once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fglaudit.reports.sweeps import named


def _settings(*names: str) -> list[Any]:
    return [
        SimpleNamespace(name=name, accuracy=0.2 + i / 100, spread=lambda i=i: f"{20 + i} %")
        for i, name in enumerate(names)
    ]


def _names(*names: str, alike: Any = lambda _: None) -> list[str]:
    return [each.name for each in named(_settings(*names), _name, alike)]


def _name(setting: Any) -> str:
    return str(setting.name)


SWEEP = ("fedgcn, gaussian epsilon=16", "fedgcn, gaussian epsilon=2", "fedgcn, gaussian epsilon=0.5")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (SWEEP, ["fedgcn, gaussian epsilon=0.5/2/16"]),
        (("a x=1", "a x=1", "b", "a x=1"), ["a x=1", "b"]),
        (("a x=1", "a x=1", "a x=2"), ["a x=1", "a x=2"]),
        (tuple(f"a x={n}, b" for n in range(9)), ["a x=0 to 8 (9 values), b"]),
        (SWEEP[:2], list(SWEEP[:2])),
        ((SWEEP[0], "fedgcn, none", *SWEEP[1:]), ["fedgcn, gaussian epsilon=0.5/2/16", "fedgcn, none"]),
        (("a x=1, b", "a x=2, b", "a x=3, c"), ["a x=1, b", "a x=2, b", "a x=3, c"]),
        (("a x=1, b y=1", "a x=2, b y=1", "a x=3, b y=1", "a x=1, b y=2"), ["a x=1/2/3, b y=1", "a x=1, b y=2"]),
        (("a x=low", "a x=high", "a x=none"), ["a x=low", "a x=high", "a x=none"]),
    ],
)
def test_a_sweep_is_one_name(names: tuple[str, ...], said: list[str]) -> None:
    assert _names(*names) == said


def test_settings_of_which_other_things_are_said_stand_apart() -> None:
    assert _names(*SWEEP, alike=lambda s: "epsilon=2" in s.name) == list(SWEEP)


def test_accuracies_of_a_sweep_are_a_range() -> None:
    (sweep,) = named(_settings(*SWEEP), _name)
    assert sweep.accuracy() == "20.0\N{NARROW NO-BREAK SPACE}% to 22.0\N{NARROW NO-BREAK SPACE}%"
