"""What is set in Python is checked by the rule, and in the words, of a suite."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fglaudit import registry
from fglaudit.datasets import CsbmOptions, CsbmTask, DatasetSpec
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.errors import FglauditError
from fglaudit.files.field_types import CheckedFields
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.parties import SERVERS
from fglaudit.parties.named import behaviour
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.suite.cell import describe

PLUGINS = [(kind, name) for kind in registry.KINDS for name in registry.names(kind)]
NUMBERS = {int: ("3", True, 2.5, None), float: ("0.5", True, float("nan"), float("inf"), None), bool: (1, "yes", 0.0)}


def made(cls: type[Any], values: dict[str, Any]) -> Any:
    """Return the instance, with values for the fields that have no default."""
    needed = {
        f.name: 1 for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }  # fmt: skip
    return cls(**{**needed, **values})


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_no_field_of_any_plugin_takes_a_value_of_another_type(kind: str, name: str) -> None:
    cls = registry.load(kind, name)
    hints = typing.get_type_hints(cls)
    for field in (f for f in dataclasses.fields(cls) if hints[f.name] in NUMBERS):
        for value in NUMBERS[hints[field.name]]:
            with pytest.raises(FglauditError, match=f"^field '{field.name}' must be ") as in_python:
                made(cls, {field.name: value})
            with pytest.raises(FglauditError) as in_a_suite:
                registry.build(kind, name, {field.name: value}, "here")
            assert str(in_a_suite.value) == f"here: {kind} {name!r}: {in_python.value}"


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: PartitionSpec("dirichlet", "10", 1.0), "clients"),  # type: ignore[arg-type]
        (lambda: DatasetSpec("csbm", draw="1"), "draw"),  # type: ignore[arg-type]
        (lambda: CsbmOptions(nodes="9"), "nodes"),  # type: ignore[arg-type]
        (lambda: CsbmTask(degree="9"), "degree"),  # type: ignore[arg-type]
        (lambda: ObserverSpec(("server",), auxiliary="0.1"), "auxiliary"),  # type: ignore[arg-type]
        (lambda: ObserverSpec("server"), "parties"),  # type: ignore[arg-type]
        (lambda: behaviour({"name": next(iter(SERVERS)), "rounds": "8"}), "rounds"),
    ],
)
def test_nor_do_data_partitions_observers_and_behaviours(build: Any, field: str) -> None:
    with pytest.raises(FglauditError, match=f"field '{field}' must be "):
        build()


def test_equal_settings_are_equal_wherever_they_were_written() -> None:
    suite = describe(registry.build("defense", "gaussian", {"epsilon": 4}))
    for value in (4, 4.0, np.int64(4), np.float32(4), np.float64(4)):
        assert repr(describe(made(Gaussian, {"epsilon": value}))) == repr(suite)
    hops = made(FedGCN, {"hops": np.int64(1)}).hops
    assert type(hops) is int and hops == 1
    assert dataclasses.replace(Gaussian(), epsilon=np.float64(2)) == Gaussian(epsilon=2)
    assert made(DatasetSpec, {"name": "cora", "root": Path("data")}) == DatasetSpec("cora", root="data")


def test_numbers_have_the_limits_of_a_suite() -> None:
    with pytest.raises(FglauditError, match="field 'rounds' may be at most 1000000; got 1000001"):
        FedGCN(rounds=1_000_001)


def test_a_class_of_ones_own_is_checked_once_before_its_own_check() -> None:
    seen: list[Any] = []

    @dataclass(frozen=True)
    class First(CheckedFields):
        share: float = 0.5

        def __post_init__(self) -> None:
            seen.append(self.share)

    @dataclass(frozen=True)
    class Second(First):
        names: tuple[str, ...] = ()

        def __post_init__(self) -> None:
            object.__setattr__(self, "names", ["changed", "here"])  # its own business, after the check
            super().__post_init__()

    assert Second(share=1, names=["a"]).share == 1.0 and seen == [1.0]  # type: ignore[arg-type]
    assert Second().names == ["changed", "here"]  # type: ignore[comparison-overlap]
    with pytest.raises(FglauditError, match="field 'names' must be a list, each entry text; got 'a'"):
        Second(names="a")  # type: ignore[arg-type]
    assert seen == [1.0, 0.5]
    assert str(inspect.signature(Second)).startswith("(share: ")


def test_a_mixin_with_a_check_of_its_own_does_not_hide_that_of_the_fields() -> None:
    class Mixin:
        def __post_init__(self) -> None:
            pass

    @dataclass(frozen=True)
    class Mine(Mixin, Defense):
        name: ClassVar[str] = "mine"
        std: float = 1.0

        def bind(self, context: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(FglauditError, match="field 'std' must be a number; got '1' "):
        Mine(std="1")  # type: ignore[arg-type]


def test_a_function_may_be_a_field() -> None:
    @dataclass(frozen=True)
    class Mine(CheckedFields):
        change: Callable[[int], int] = abs

    assert Mine(change=len).change is len  # type: ignore[arg-type, comparison-overlap]


def test_every_kind_of_plugin_is_checked() -> None:
    assert all(issubclass(base, CheckedFields) for base in (Attack, Defense, FederatedProtocol))
