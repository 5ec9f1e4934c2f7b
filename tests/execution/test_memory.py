"""A data set that does not fit fails its own cells and no others; who runs out of memory says where, on what."""

from __future__ import annotations

from pathlib import Path

import pytest
from execution_runs import run, suite
from harness_runners import KILLED, OUT_OF_MEMORY, RAISES, USER_ERROR, too_much

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.datasets.size import Size, expected_size
from fglaudit.errors import FglauditError
from fglaudit.execution.engines import data_child
from fglaudit.execution.engines.data_child import Loaded, TooLarge, look, look_safely
from fglaudit.execution.engines.worker import explain
from fglaudit.execution.message_budget import LargeMessages
from fglaudit.execution.preflight import check_data
from fglaudit.federated import needs
from fglaudit.finding import Status
from fglaudit.partition import PartitionSpec


def spec(seed: int = 0, nodes: int = 40) -> DatasetSpec:
    return DatasetSpec("csbm", csbm=CsbmOptions(nodes, 2 * nodes, 2, 16, ones_per_row=3, seed=seed), split="random")


@pytest.mark.parametrize("drawn", [spec(), DatasetSpec("csbm-snc"), DatasetSpec("csbm-cora")])
def test_the_size_is_known_before_anything_is_drawn(drawn: DatasetSpec) -> None:
    graph = drawn.load()
    taken = sum(tensor.numel() * tensor.element_size() for tensor in (graph.x, graph.y, graph.edge_index))
    assert expected_size(drawn).bytes == pytest.approx(taken, rel=0.02)


def test_the_size_of_an_own_graph_is_that_of_its_file_at_least(tmp_path: Path) -> None:
    (tmp_path / "own.npz").write_bytes(b"x" * 5000)
    assert str(expected_size(DatasetSpec("npz", path=str(tmp_path / "own.npz")))) == "at least 4.9 KiB"
    assert expected_size(DatasetSpec("npz", path=str(tmp_path / "none.npz"))) == Size(0, exact=False)
    assert str(expected_size(DatasetSpec("ogbn-products"))) == "at least 952.9 MiB"


def test_a_small_one_is_loaded_here_and_a_larger_one_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = look_safely(spec())
    monkeypatch.setattr(data_child, "LOADED_HERE", 0)
    assert here == look_safely(spec()) == look(spec())
    assert isinstance(here, Loaded) and here.nodes == 40 and len(here.digest) == 16


@pytest.mark.parametrize("apart", [False, True])
def test_large_messages_are_counted_while_the_data_are_loaded_to_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """A second load for them alone would take as long as the first one, in a process that may not have the memory."""
    loads, load = list[str](), DatasetSpec.load_with_notes
    monkeypatch.setattr(needs, "MOST_SENT", 10)

    def counted(spec: DatasetSpec) -> object:
        loads.append(spec.name)
        return load(spec)

    monkeypatch.setattr(DatasetSpec, "load_with_notes", counted)
    what = suite(protocols=[{"name": "fedgat", "rounds": 1}])
    if apart:
        monkeypatch.setattr(data_child, "LOADED_HERE", 0)
        monkeypatch.setattr(PartitionSpec, "apply", lambda *_: pytest.fail("split in this process"))
    ask = LargeMessages.of(what)
    assert loads == [] and ask is not None
    answers = check_data(what, ask).answers
    assert len(loads) == (0 if apart else 1)
    if not apart:  # the limit of this process is not that of the other one
        assert "MaskedMatrices before its first round" in answers[0]
        assert f"note: {answers[0]}" in run(what, tmp_path)[1]


@pytest.mark.parametrize(
    ("seed", "apart", "words"),
    [
        (KILLED, True, "the process ended with -9"),
        (OUT_OF_MEMORY, False, "MemoryError"),
        (RAISES, False, "RuntimeError"),
    ],
)
def test_running_out_of_memory_ends_no_run(monkeypatch: pytest.MonkeyPatch, seed: int, apart: bool, words: str) -> None:
    monkeypatch.setattr(data_child, "look", too_much)
    if apart:
        monkeypatch.setattr(data_child, "LOADED_HERE", 0)
    found = look_safely(spec(seed))
    assert isinstance(found, TooLarge)
    assert f"out of memory while loading its data ({words}" in found.reason
    assert f"take {expected_size(spec(seed))}" in found.reason and "this machine has" in found.reason


def test_what_is_wrong_with_the_data_is_said_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_child, "look", too_much)
    monkeypatch.setattr(data_child, "LOADED_HERE", 0)
    with pytest.raises(FglauditError, match="a rule is broken; got 3; change it"):
        look_safely(spec(USER_ERROR))


def test_a_data_set_that_does_not_fit_fails_its_own_cells_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [{"name": "csbm", "csbm": {"nodes": nodes, "edges": 2 * nodes, "dimensions": 20}} for nodes in (60, 6000)]
    what = suite(datasets=entries)
    with monkeypatch.context() as patch:
        patch.setattr(data_child, "machine_memory", lambda: 2**18)
        records, log = run(what, tmp_path)
    assert [record.findings[0].status for record in records] == [Status.OK] * 2 + [Status.FAILED] * 2
    (reason,) = {row.reason for record in records[2:] for row in record.findings}
    assert reason.startswith("out of memory before loading its data: ") and "0.9 MiB" in reason and "0.2 MiB" in reason
    assert "datasets[1] csbm: out of memory" in log and "its cells fail" in log
    records, log = run(what, tmp_path)
    assert "2 of 4 cells are finished already" in log
    assert {record.findings[0].status for record in records} == {Status.OK}


def test_a_cell_that_runs_out_of_memory_says_when_and_what_its_data_take() -> None:
    reason = explain(MemoryError(), "training (round 1 of 2)", spec(nodes=4000))
    assert "out of memory while training (round 1 of 2) (MemoryError: no details)" in reason
    assert "take about 0.5 MiB" in reason and "--jobs" in reason
