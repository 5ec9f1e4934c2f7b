"""``--dry-run`` opens data and partitions, says what will fail, and runs no plugin file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fglaudit import registry
from fglaudit.cli import main
from fglaudit.datasets import DatasetSpec
from fglaudit.execution.engines import data_child
from fglaudit.execution.exit_code import ExitCode
from fglaudit.federated import needs
from fglaudit.graph import Graph
from fglaudit.suite.overrides import load_suite

SUITE = """
name: small
datasets: [{name: csbm, csbm: {nodes: 60, edges: 120, dimensions: 20}}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
"""


def call(text: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    Path("small.yaml").write_text(text)
    try:
        main(["run", "small.yaml", "--dry-run", *options])
        code = 0
    except SystemExit as done:
        code = int(done.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_what_is_opened_and_what_will_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(SUITE, capsys)
    assert code == 0 and "opened: csbm, 60 nodes, 120 edges, about 8.9 KiB of memory" in out
    estimate = re.search(
        r"1 cell csbm\(.*\) .* none: about ([\d.]+) s \(training .*\), at least ([\d.]+) MiB of memory, [\d.]+ KiB on",
        out,
    )
    assert estimate is not None and 0 < float(estimate[1]) < 600 and float(estimate[2]) > 50
    assert "1 of 1 cell: about " in out
    assert "3 clients of " in out and not Path("runs").exists()
    code, out, _ = call(SUITE.replace("{name: fedgcn, hops: 1, rounds: 2}", "nfedgnn"), capsys)
    assert code == ExitCode.FAILED and "will fail: datasets[0], partitions[0], protocols[0]: " in out
    code, _, error = call(SUITE.replace("clients: 3", "clients: 61"), capsys)
    assert code == ExitCode.INPUT and "61 clients" in error


def test_many_bytes_are_told_before_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(needs, "MOST_SENT", 1000)
    large = SUITE.replace("fedgcn, hops: 1,", "fedgat,") + "attacks: [raw-features]\n"
    told = re.compile(r"note: .*fedgat on 'csbm' sends [\d.]+ MiB of MaskedMatrices before its first round, more than")
    assert told.search(call(large, capsys, "--quick")[1])
    with pytest.raises(SystemExit):
        main(["run", "small.yaml", "--quick", "--jobs", "1"])
    out = capsys.readouterr().out
    found = told.search(out)
    assert found and found.start() < out.index("[1/1]")


def test_observers_are_told_apart_by_what_they_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    two = SUITE.replace("[{parties: [server]}]", "[{parties: [server]}, {parties: [server], topology: true}]")
    assert "observers: server, server (topology)\n" in call(two, capsys, "--quick")[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--jobs", "0"), "--jobs must be 1 or more; got 0; leave it out"),
        (("--engine", "spark"), "unknown engine 'spark'"),
        (("--gpus", "1"), "--gpus is for --engine ray"),
        (("--cell-timeout", "-1"), "--cell-timeout must be above 0"),
        (("--out", "small.yaml"), "a run is a folder; small.yaml is a file; use another --out"),
        (("--out", "."), "the output folder must be new, empty or a run"),
    ],
)
def test_options_that_a_run_refuses_are_refused(
    options: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = call(SUITE, capsys, "--device", "cpu", *options)
    assert code == ExitCode.INPUT and words in error, error


def test_no_plugin_file_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("from pathlib import Path\nPath('ran').touch()\nclass Mine:\n    pass\n")
    text = SUITE.replace("{name: fedgcn, hops: 1, rounds: 2}", '{name: "mine.py:Mine"}')
    code, out, error = call(text, capsys)
    assert code == 0, error
    assert "3 clients of " in out and "not estimated: plugin files are not run here" in out
    assert not Path("ran").exists()


def test_the_rows_are_those_that_a_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attacks on payloads that a protocol never sends are not run on it."""
    monkeypatch.chdir(tmp_path)
    _, out, _ = call(SUITE, capsys)
    (cell,) = load_suite("small.yaml").cells()
    assert f"1 cell x 1 observer x the attacks that read what each protocol sends = {len(cell.attacks)} rows" in out
    assert 0 < len(cell.attacks) < len(registry.names("attack"))


IDLE = SUITE + "defenses: [{name: gaussian, epsilon: 8, unit: edge}]\nseeds: [0, 1]\nattacks: [subset-sum]\n"
"""FedGCN states the sensitivity of its sums per node."""


def test_cells_that_do_not_apply_are_no_cells_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were listed as to do, with and without estimates."""
    monkeypatch.chdir(tmp_path)
    both = IDLE.replace("[{name: gaussian", "[none, {name: gaussian")
    for options in (["--quick"], []):
        code, out, error = call(both, capsys, *options)
        assert code == 0, error
        assert [line.split("  ")[1].strip() for line in out.splitlines() if " seed " in line] == [
            *["to do"] * 2, *["not-applicable"] * 2,
        ]  # fmt: skip
        (why,) = [line for line in out.splitlines() if "not applicable: " in line]
        assert "fedgcn states the sensitivity of NeighborSums per node, not per edge" in why
    assert "2 of 2 cells: " in out
    sweep = both.replace("epsilon: 8", "epsilon: {sweep: [1, 2, 4]}")
    (why,) = [line for line in call(sweep, capsys, "--quick")[1].splitlines() if "not applicable: " in line]
    assert "gaussian(epsilon=1;clip=1;unit=edge) and 2 settings more: fedgcn states" in why, "one reason, one line"


@pytest.mark.parametrize("options", [(), ("--quick",)])
def test_a_suite_in_which_nothing_applies_is_one_to_be_changed(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = call(IDLE, capsys, *options)
    assert code == ExitCode.INPUT and out.count("not-applicable") == 2
    assert error.startswith("error: ") and error.count("\n") == 1
    assert "of 2 cells here it does in none: fedgcn states" in error and "change defenses" in error


def test_so_is_one_that_was_run_and_a_shard_of_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a shard nobody knows what the others have."""
    monkeypatch.chdir(tmp_path)
    Path("idle.yaml").write_text(IDLE)
    arguments = ["run", "idle.yaml", "--device", "cpu", "--jobs", "1", "--quick", "--quiet"]
    codes = []
    for more in ([], ["--out", "part", "--shard", "1/2"]):
        with pytest.raises(SystemExit) as done:
            main([*arguments, *more])
        codes.append(done.value.code or 0)
    assert codes == [ExitCode.INPUT, 0]
    assert "of 2 cells here it does in none: fedgcn states" in capsys.readouterr().err
    assert (Path("runs") / "small" / "coverage.csv").exists(), "the rows are there, with their reasons"


def test_what_fails_in_the_first_rounds_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.chdir(tmp_path)
    masked = SUITE + "defenses: [none, {name: secure-aggregation, range: 0.001}]\n"
    code, out, _ = call(masked, capsys)
    assert code == ExitCode.FAILED and "1 of 2 cells will fail in the first rounds" in out
    assert re.search(r"will fail: .* in ModelUpdate; set `range: [\d.]+` of the defense", out)
    assert call(masked.replace("0.001", "16"), capsys)[0] == 0


def test_a_data_set_is_loaded_once_to_be_checked_and_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was loaded to be checked, and again to be described: minutes each on large graphs."""
    monkeypatch.chdir(tmp_path)
    loads, load = list[str](), DatasetSpec.load_with_notes

    def counted(spec: DatasetSpec) -> tuple[Graph, tuple[str, ...]]:
        loads.append(spec.name)
        return load(spec)

    monkeypatch.setattr(DatasetSpec, "load_with_notes", counted)
    assert "3 clients of" in call(SUITE, capsys, "--quick")[1] and loads == ["csbm"]


def test_a_process_of_its_own_describes_a_large_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    here = call(SUITE, capsys, "--quick")
    monkeypatch.setattr(data_child, "LOADED_HERE", 0)
    monkeypatch.setattr(DatasetSpec, "load_with_notes", None)
    assert call(SUITE, capsys, "--quick") == here
