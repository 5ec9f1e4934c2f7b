"""Whatever happens to a stored file, it is read as it was written or counts as missing: no traceback, no other
figure."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from pathlib import Path
from typing import Any

import pytest
from execution_runs import run, suite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fglaudit.errors import FglauditError
from fglaudit.execution.folder.csv_files import csv_cell
from fglaudit.execution.folder.plan import Planned, plan_from_json, plan_to_json
from fglaudit.execution.folder.stored_record import FORMAT, Made, check_record, column_checks, parse_record, record_text
from fglaudit.execution.folder.stored_run import read_records
from fglaudit.execution.rows import blank_record
from fglaudit.files.own import stamped, unstamped
from fglaudit.finding import NOT_RUN, CellRecord, Status
from fglaudit.rng import copied, derive, split

MADE = Made("0.1.0", 1, {"datasets[0] x": "00"}, {})


@functools.cache
def record() -> CellRecord:
    (cell,) = suite(seeds=[0]).cells()
    blank = blank_record(cell, "small", Status.OK, "")
    rows = tuple(dataclasses.replace(row, accuracy=0.735, value=0.25, advantage=-0.5) for row in blank.findings)
    return dataclasses.replace(
        blank, findings=rows, clusters={"a|b|c": [[3.0, 0.0, 1.0, 0.0]]}, history={"accuracy": [0.5, math.pi]}
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_changed_bytes_are_noticed(data: st.DataObject) -> None:
    text = record_text(record(), MADE).encode()
    place = data.draw(st.integers(0, len(text) - 2))  # the last one is a line break
    what = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != text[place]))
    changed = {
        "flip": text[:place] + bytes([byte]) + text[place + 1 :],
        "cut": text[:place],
        "insert": text[:place] + bytes([byte]) + text[place:],
    }[what]
    with pytest.raises(ValueError, match="digest"):
        parse_record(changed, record().cell)
    assert record_text(*parse_record(text, record().cell)).encode() == text


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_record(text, record().cell)


@given(st.sampled_from(sorted(record().to_json())), JSON)
def test_a_value_of_another_type_with_a_right_digest_is_noticed_or_harmless(key: str, value: Any) -> None:
    cell = record().cell
    text = stamped({"format": FORMAT, **record().to_json(), key: value, "made": MADE.to_json()}, f"{cell}.json")
    try:
        found, _ = parse_record(text.encode(), cell)
    except ValueError:
        return
    check_record(found.to_json())


@given(st.sampled_from(sorted(dataclasses.asdict(record().findings[0]))), JSON)
def test_a_column_takes_only_values_that_it_can_have(column: str, value: Any) -> None:
    data = record().to_json()
    data["findings"][0][column] = value
    old = getattr(record().findings[0], column)
    try:
        check_record(data)
    except ValueError:
        return
    assert value is None or type(value) is type(old) or isinstance(value, (int, float, str))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("accuracy", 73.5), ("accuracy", True), ("accuracy", "0.7"), ("f1", -0.1), ("cosine", 1.5), ("targets", 2.5),
        ("status", "fine"), ("seed", None), ("bytes_up", -1), ("advantage", 1.01), ("dataset", 3), ("delta", math.inf),
    ],
)  # fmt: skip
def test_impossible_values_are_refused(column: str, value: Any) -> None:
    data = record().to_json()
    data["findings"][0][column] = value
    with pytest.raises(ValueError, match=column):
        check_record(data)


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ([3.0, 0.0], "got 2 numbers"),
        ([3.0, 0.0, 1.0], "got 3 numbers"),
        ([3.0, 0.0, 1.0, 0.0, 0.0], "got 5 numbers"),
        ([3.0, 0.0, 4.0, 0.0], "cluster 0 has 3 targets, control 0, gained 4"),
        ([3.0, -1.0, 0.0, 0.0], "control -1"),
        ([3.0, math.nan, 0.0, 0.0], "finite"),
        ([10**400, 0, 0, 0], "too large"),
        ([3.0, "1", 0.0, 0.0], "clusters"),
    ],
)
def test_clusters_are_four_numbers_that_can_be(cluster: list[Any], words: str) -> None:
    data = {**record().to_json(), "clusters": {"a|b|c": [[3.0, 0.0, 1.0, 0.0], cluster][::-1]}}
    with pytest.raises(ValueError, match=words):
        check_record(data)


def test_a_record_in_the_place_of_another_is_noticed() -> None:
    with pytest.raises(ValueError, match="digest"):
        parse_record(record_text(record(), MADE).encode(), "0" * 16)


@given(st.dictionaries(st.text(max_size=10).filter(lambda k: k != "digest"), JSON, min_size=1))
def test_stamped_files_come_back_as_they_were(data: dict[str, Any]) -> None:
    back = unstamped(stamped(data, "a.json").encode(), "a.json")
    assert repr(back) == repr(data)


@given(st.sampled_from(["keys", "tables", "cells"]), JSON)
def test_a_damaged_plan_is_a_value_error(key: str, value: Any) -> None:
    plan = plan_to_json([Planned.like(record())])
    assert plan_from_json(plan)[0].record("small", NOT_RUN).cell == record().cell
    try:
        found = plan_from_json({**plan, key: value})
    except ValueError:
        return
    for planned in found:
        check_record(planned.record("small", NOT_RUN).to_json())


@pytest.mark.parametrize("name", ["../../../x", "..", "a/b", "0" * 15, "0" * 15 + "G"])
def test_a_plan_cannot_lead_out_of_its_folder(name: str) -> None:
    plan = plan_to_json([Planned.like(record())])
    plan["cells"][0][0] = name
    with pytest.raises(ValueError, match="16 hex digits"):
        plan_from_json(plan)


@given(st.text())
def test_text_is_never_a_formula_for_a_spreadsheet(text: str) -> None:
    cell = csv_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")) and cell.removeprefix("'") == text.removeprefix("'")


def test_numbers_are_not_text() -> None:
    assert [csv_cell(v) for v in (-0.5, -3, None, math.nan, "-0.5")] == ["-0.5", "-3", "", "", "'-0.5"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_with_any_damaged_file_resumes_to_equal_findings(tmp_path: Path, data: st.DataObject) -> None:
    out = tmp_path / "out"
    what = suite()
    expected = [without_seconds(r) for r in run(what, out)[0]]
    names = [
        "run.json",
        "suite.yaml",
        "findings.csv",
        "coverage.csv",
        "guarantees.csv",
        *sorted(f"cells/{p.name}" for p in out.glob("cells/*.json")),
    ]
    path = out / data.draw(st.sampled_from(names))
    content = path.read_bytes()
    change = data.draw(st.sampled_from(["remove", "empty", "folder", "flip", "cut", "link"]))
    path.unlink()
    place = int(data.draw(st.floats(0, 0.999)) * (len(content) - 1))  # the size depends on the seconds that passed
    if change == "empty":
        path.touch()
    elif change == "folder":
        path.mkdir()
    elif change == "link":
        path.symlink_to("/dev/zero")
    elif change == "flip":
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
    elif change == "cut":
        path.write_bytes(content[:place])
    try:
        records, _ = run(what, out)
    except FglauditError as error:
        assert change == "folder" and "over a folder" in str(error)
        path.rmdir()
        records, _ = run(what, out)
    assert [without_seconds(r) for r in records] == [without_seconds(r) for r in read_records(out)] == expected


def without_seconds(found: CellRecord) -> CellRecord:
    rows = tuple(dataclasses.replace(row, seconds_train=None, seconds_attack=None) for row in found.findings)
    return dataclasses.replace(found, findings=rows)


def test_the_empty_key_is_the_public_stream_and_another_key_another_stream() -> None:
    import torch

    def drawn(key: bytes) -> torch.Tensor:
        return torch.rand(4, generator=derive(3, "noise", key=key))

    expected = torch.Generator().manual_seed(int.from_bytes(_blake(repr((3, "noise"))), "little") >> 1)
    assert torch.equal(drawn(b""), torch.rand(4, generator=expected))
    one, other = b"a" * 16, b"b" * 16
    assert torch.equal(drawn(one), drawn(one))
    assert not torch.equal(drawn(one), drawn(other)) and not torch.equal(drawn(one), drawn(b""))
    seeded = torch.Generator().manual_seed(derive(3, "noise", key=one).initial_seed())
    assert not torch.equal(drawn(one), torch.rand(4, generator=seeded)), "32 bits of a seed give the stream away"
    child = split(derive(3, "noise", key=one), "child")
    assert not torch.equal(
        torch.rand(4, generator=child), torch.rand(4, generator=torch.Generator().manual_seed(child.initial_seed()))
    )


def test_a_copied_generator_draws_and_splits_alike_and_is_as_secret() -> None:
    import torch

    rng = derive(3, "noise", key=b"a" * 16)
    torch.rand(5, generator=rng)
    again = copied(rng)
    assert type(again) is type(rng)
    assert torch.equal(torch.rand(4, generator=split(again, "child")), torch.rand(4, generator=split(rng, "child")))
    assert torch.equal(torch.rand(4, generator=again), torch.rand(4, generator=rng))


def test_who_holds_a_child_knows_no_key_of_its_parent_or_of_another_child() -> None:
    from fglaudit.rng import KeyedGenerator

    parent, one, other = (derive(3, "noise", key=b"a" * 16) for _ in range(3))
    first, second = split(one, "a call"), split(one, "a call")
    assert isinstance(first, KeyedGenerator) and isinstance(second, KeyedGenerator)
    assert isinstance(parent, KeyedGenerator)
    assert len({parent.key, first.key, second.key}) == 3, "with the key of all, a plugin would know the run's own calls"
    assert split(other, "a call").get_state().equal(split(parent, "a call").get_state())


def test_only_one_module_seeds_generators_from_seeds() -> None:
    """``fglaudit.rng.moved`` keeps a stream as secret as its key; the first 64 bits of one would give it away."""
    root = Path(__file__).parents[2]
    files = [file for room in ("fglaudit", "protocols", "attacks", "defenses") for file in (root / room).rglob("*.py")]
    assert len(files) > 200
    seeding = {file for file in files if re.search(r"\.(initial_seed|manual_seed|seed)\(", file.read_text("utf-8"))}
    assert {file.relative_to(root).as_posix() for file in seeding} == {"fglaudit/rng.py"}


def _blake(text: str) -> bytes:
    import hashlib

    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def test_a_column_of_a_type_without_a_check_is_refused_where_it_is_declared() -> None:
    """It passed for a number: every record with a value of it would have counted as damaged."""

    @dataclasses.dataclass
    class Row:
        seconds: float | None
        place: tuple[str, ...]

    with pytest.raises(TypeError, match=r"place is tuple\[str, \.\.\.\]; give it a check of its own"):
        column_checks(Row, {})
    checks = column_checks(Row, {"place": lambda value: value == ["here"]})
    assert checks["place"](["here"]) and checks["seconds"](None) and not checks["seconds"]("1")
