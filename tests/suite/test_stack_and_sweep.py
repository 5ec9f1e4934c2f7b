"""Stacks and sweeps in a suite: what they stand for, how they are written back, and what is refused where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.suite.cell import arguments, describe
from fglaudit.suite.reading import parse
from fglaudit.suite.suite import Suite, resolve

BASE = """
name: small
datasets: [{name: csbm-cora}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
"""
STACK: dict[str, Any] = {"stack": [{"name": "gaussian", "epsilon": 4}, "homomorphic-encryption"]}


def suite(*defenses: Any, folder: Path | None = None) -> Suite:
    return resolve({**parse(BASE, "small"), "defenses": list(defenses)}, "small", folder)


def test_a_stack_is_a_defense_with_a_name_arguments_and_a_hash() -> None:
    found = suite(STACK, "none", {"stack": [{"name": "gaussian", "epsilon": 5}, "homomorphic-encryption"]})
    cells = found.cells()
    assert [cell.defense.name for cell in cells] == ["stack", "none", "stack"]
    assert len({cell.hash() for cell in cells}) == 3
    assert describe(cells[0].defense)["parts"][0] == {
        "name": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": 1.0, "unit": "node", "on": "NeighborSums",
    }  # fmt: skip
    assert arguments(cells[0].defense) == (
        "parts=gaussian(epsilon=4,clip=1)+homomorphic-encryption(scheme=bfv,padded=False)"
    )
    named = suite({"name": "stack", "parts": STACK["stack"]})
    assert named.cells()[0].hash() == cells[0].hash()


def test_a_sweep_is_one_defense_per_value_in_order() -> None:
    swept = suite({"name": "gaussian", "epsilon": {"sweep": [1, 4, 8]}, "clip": {"sweep": [1.0, 2.0]}}, "none")
    written = suite(*({"name": "gaussian", "epsilon": e, "clip": c} for e in (1, 4, 8) for c in (1.0, 2.0)), "none")
    assert swept.defenses == written.defenses
    assert [c.hash() for c in swept.cells()] == [c.hash() for c in written.cells()]


def test_fields_that_are_lists_or_text_can_be_swept() -> None:
    swept = suite(
        {"name": "clipping", "clip": {"sweep": [[1, 1], [2, 2]]}},
        {"name": "dp-fedavg", "trust": {"sweep": ["server", "local"]}},
    )
    assert [d.clip for d in swept.defenses[:2]] == [(1.0, 1.0), (2.0, 2.0)]  # type: ignore[attr-defined]
    assert [d.trust for d in swept.defenses[2:]] == ["server", "local"]  # type: ignore[attr-defined]


def test_sweeps_in_the_parts_of_a_stack() -> None:
    parts = [
        {"name": "gaussian", "epsilon": {"sweep": [1, 4]}},
        {"name": "dp-sgd", "edges": "public", "clip": {"sweep": [1, 2]}},
    ]
    found = [(a.epsilon, b.clip) for a, b in (d.parts for d in suite({"stack": parts}).defenses)]  # type: ignore[attr-defined]
    assert found == [(1, 1), (1, 2), (4, 1), (4, 2)]


def test_a_resolved_suite_with_stacks_and_sweeps_reads_back_to_the_same_cells(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\nfrom fglaudit.interfaces import *\n"
        "@dataclass(frozen=True)\nclass Mine(Defense):\n    name: ClassVar[str] = 'mine'\n    size: int = 1\n"
        "    def bind(self, context):\n        return DefenseSession()\n"
    )
    mine = {"name": "mine.py:Mine", "size": {"sweep": [1, 2]}}
    first = suite(STACK, {"stack": ["drop-singletons", mine]}, folder=tmp_path)
    assert [part.size for part in (d.parts[1] for d in first.defenses[1:])] == [1, 2]  # type: ignore[attr-defined]
    again = resolve(parse(yaml.safe_dump(first.resolved()), "again"), "again")
    assert [c.hash() for c in again.cells()] == [c.hash() for c in first.cells()]


@pytest.mark.parametrize(
    ("defense", "words"),
    [
        ({"name": "gaussian", "epsilon": {"sweep": []}}, ["defenses[0]", "'epsilon'", "one value or more"]),
        ({"name": "gaussian", "epsilon": {"sweep": 4}}, ["'epsilon'", "one value or more", "got 4"]),
        ({"name": "gaussian", "epsilon": {"sweep": [1, 1.0]}}, ["'epsilon'", "must differ", "1.0 is repeated"]),
        ({"name": "gaussian", "epsilon": {"sweep": [1], "step": 2}}, ["'epsilon'", "step beside it"]),
        ({"name": "gaussian", "epsilon": {"sweep": [{"sweep": [1]}]}}, ["'epsilon'", "no sweep inside"]),
        ({"name": "gaussian", "epsilon": {"sweep": [1, -1]}}, ["defenses[0] (epsilon=-1)", "epsilon must be positive"]),
        ({"name": "gaussian", "epsilon": {"sweep": [1, "x"]}}, ["(epsilon=x)", "field 'epsilon' must be a number"]),
        ({"name": "gaussian", "epsilom": {"sweep": [1, 2]}}, ["'epsilom'", "did you mean 'epsilon'"]),
        ({"name": {"sweep": ["none", "gaussian"]}}, ["'name'", "not of a defense, its name"]),
        ({"sweep": ["none", "gaussian"]}, ["defenses[0]", "not of a defense"]),
        ({"stack": {"sweep": [1]}}, ["'stack'", "or its parts"]),
        ({"name": "gaussian", "epsilon": {"sweep": list(range(1, 1002))}}, ["at most 1000", "got 1001"]),
        ({"stack": []}, ["defenses[0]", "at least two defenses", "got 0"]),
        ({"stack": ["none"]}, ["at least two defenses"]),
        ({"stack": "none"}, ["defenses[0]", "lists defenses", "'none'"]),
        ({"stack": ["none", 3]}, ["defenses[0]: stack[1]", "got 3"]),
        ({"stack": ["none", {"epsilon": 3}]}, ["defenses[0]: stack[1]", "needs a name"]),
        ({"stack": ["none", "gausian"]}, ["defenses[0]: stack[1]", "did you mean 'gaussian'"]),
        ({"stack": ["none", {"name": "gaussian", "epsilom": 3}]}, ["defenses[0]: stack[1]", "did you mean 'epsilon'"]),
        (
            {"stack": ["none", {"name": "gaussian", "epsilon": -3}]},
            ["defenses[0]: stack[1]", "epsilon must be positive"],
        ),
        ({"stack": ["none", {"stack": ["none", "gaussian"]}]}, ["stack[1]", "no stack inside"]),
        ({"stack": ["none", "gaussian"], "name": "mine"}, ["defenses[0]", "stack alone", "name"]),
        ({"name": "stack"}, ["needs a value for parts"]),
        ({"name": "gaussian", "epsilon": {"swep": [1, 4]}}, ["defenses[0]", "'epsilon'", "did you mean 'sweep'"]),
        ({"stack": [{"name": "gaussian", "clip": {"Sweeps": [1]}}, "none"]}, ["stack[0].clip", "did you mean 'sweep'"]),
        ({"name": "gaussian", "epsilon": {"values": [1]}}, ["'epsilon' must be a number", "{sweep: [...]}"]),
        ({"stak": ["none", "gaussian"]}, ["the key stack", "did you mean 'stack'"]),
        ({"stack": [{"nmae": "gaussian"}, "none"]}, ["defenses[0]: stack[0]", "did you mean 'name'"]),
        ({"name": "gaussian", "epsilon": [1, 4]}, ["'epsilon' must be a number", "{sweep: [...]}"]),
    ],
)
def test_wrong_values_are_refused_with_their_place(defense: Any, words: list[str]) -> None:
    with pytest.raises(FglauditError) as caught:
        suite(defense)
    for word in words:
        assert word in str(caught.value)


def test_a_sweep_that_repeats_another_entry_is_refused() -> None:
    with pytest.raises(FglauditError, match=r"defenses\[1\] \(epsilon=4\) repeats defenses\[0\]"):
        suite({"name": "gaussian", "epsilon": 4}, {"name": "gaussian", "epsilon": {"sweep": [1, 4]}})


def test_protocols_have_no_sweeps() -> None:
    with pytest.raises(FglauditError, match="'rounds' must be a whole number"):
        resolve({**parse(BASE, "small"), "protocols": [{"name": "fedgcn", "rounds": {"sweep": [1, 2]}}]}, "small")


def test_the_stack_is_listed() -> None:
    assert "stack" in registry.names("defense")
    assert registry.summary("defense", "stack").startswith("Several defenses one after the other")
