"""The command line as a user meets it: messages, exit codes, listings, and no heavy import where none is needed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fglaudit import __version__, registry
from fglaudit.cli import main
from fglaudit.commands.run import resumable
from fglaudit.errors import FglauditError
from fglaudit.files.own import write_atomic
from fglaudit.suite.embedded import embedded
from fglaudit.suite.overrides import load_suite

SUITE = """
name: small
datasets: [{name: csbm, csbm: {nodes: 60, edges: 120, dimensions: 20}}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FGLAUDIT_DATA", raising=False)
    (tmp_path / "small.yaml").write_text(SUITE)
    return tmp_path


def call(*arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return int(caught.value.code or 0)


def test_version_help_and_lists_are_quick_because_nothing_heavy_is_imported() -> None:
    for arguments in (
        ["--version"],
        ["--help"],
        ["run", "--help"],
        ["list", "attacks"],
        ["list", "protocols"],
        ["list", "defenses"],
    ):
        code = (
            "import sys\nfrom fglaudit.cli import main\n"
            f"try:\n    main({arguments!r})\nexcept SystemExit as done:\n    assert not done.code, done.code\n"
            "assert not {'torch', 'pandas', 'scipy', 'sklearn'} & set(sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_version_and_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"fglaudit {__version__}\n"
    done = subprocess.run([sys.executable, "-m", "fglaudit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"fglaudit {__version__}\n"


def test_every_listed_thing_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("protocols", "attacks", "defenses", "datasets", "partitions", "suites"):
        assert call("list", kind) == 0
        names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
        assert names
        for name in names:
            assert call("show", name) == 0
            assert name in capsys.readouterr().out
    assert call("show", "fedgt") == 0
    shown = capsys.readouterr().out
    assert "rounds: of federated training" in shown and "momentum: gamma" in shown, "shared fields are described too"
    assert call("show", "fedgcn") == 0  # both a protocol and a suite
    out = capsys.readouterr().out
    assert (
        "hops: int" in out
        and "sends: NeighborSums, HopSums, ModelUpdate" in out
        and embedded()["fedgcn"].splitlines()[0] in out
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "attack"], ["did you mean 'attacks'"]),
        (["show", "fedgnc"], ["did you mean 'fedgcn'"]),
        (["show", "GFL_APPNP"], ["did you mean 'gfl-appnp'"]),
        (["run", "quickstart", "--device", "gpu"], ["--device cuda"]),
        (["run", "quikstart"], ["did you mean 'quickstart'"]),
        (["run", "none.yaml"], ["there is no file none.yaml"]),
        (["run", "quickstart", "--dataset", "coar"], ["error: --dataset: ", "did you mean 'cora'"]),
        (["run", "quickstart", "--seeds", "x", "--dry-run"], ["--seeds", "'x'"]),
        (["run", "quickstart", "--root", "nowhere"], ["--root", "nowhere"]),
        (["run", "small.yaml", "--device", "tpu"], ["unknown device 'tpu'"]),
        (["run", "small.yaml", "--engine", "spark"], ["unknown engine 'spark'"]),
        (["run", "small.yaml", "--dataset", "none.npz"], ["none.npz"]),
        (["report", "nowhere"], ["nowhere"]),
        (["data", "fetch", "coar", "--root", "d"], ["did you mean 'cora'"]),
        (["data", "facts", "coar"], ["did you mean 'cora'"]),
        (["data", "check", "--root", "nowhere"], ["nowhere"]),
        (["data", "check"], ["fglaudit data fetch cora --root DIR"]),
        (["data", "check", "coar"], ["did you mean 'cora'"]),
        (["run", "small"], ["write small.yaml, which is here"]),
        (["run", "empty.yaml"], ["empty.yaml is empty; write e.g. name: my-suite"]),
        (["check", "mine.py"], ["write mine.py:Mine"]),
        (["report", "small.yaml"], ["small.yaml is a file; name the --out folder of a run"]),
        (
            ["run", "quickstart", "--out", ""],
            ["'--out': a path must not be empty; write . for the working folder"],
        ),
        (["run", "quickstart", "--root", ""], ["'--root': a path must not be empty"]),
        (["report", ""], ["'DIR': a path must not be empty"]),
        (["compare", "runs/a", ""], ["'B': a path must not be empty"]),
        (["gate", "", "policy.yaml"], ["'RUN': a path must not be empty"]),
        (["new", "defense", "mine", "--folder", ""], ["'--folder': a path must not be empty"]),
        (["run", "quickstart", "--confirm", "0"], ["--confirm must be 1 or more; got 0; leave it out"]),
        (["reproduce", "fedgcn-table2", "--seeds", "0"], ["--seeds must be 1 or more; got 0; leave it out"]),
        (
            ["run", "quickstart", "--jobs", "a"],
            ["'--jobs': must be a whole number; got run quickstart --jobs a; fglaudit"],
        ),
        (["run", "quickstart", "--jobz", "2"], ["--jobz", "fglaudit run --help says what there is"]),
        (["run"], ["'suite'", "fglaudit run --help"]),
        (["rum"], ["no such command 'rum'", "fglaudit --help says what there is"]),
        (["list", "cheese"], ["'cheese' (known: attacks, datasets, defenses, partitions"]),
        (["show", "cheese"], ["'cheese' (known: ", "; all: fglaudit list protocols|attacks|"]),
        (["show", "laplace"], ["did you mean 'clipped-laplace'"]),
        (["run", "folder"], ["'folder' is a folder; name the file in it"]),
        (["run", "small.yaml", "--dry-run", "--log", "none/x"], ["log file", "none/x", "use another --log"]),
        (["run", "small.yaml", "--dry-run", "--log", "folder"], ["folder: Is a directory; use another --log"]),
        (["data", "fetch", "cora", "--root", "mine.py"], ["'mine.py': File exists; use another --root"]),
        (["data", "fetch", "cora", "--root", "mine.py/x"], ["'mine.py/x': Not a directory; use another --root"]),
        (["data", "fetch", "cora", "--root", "a" * 300], ["File name too long", "use another --root"]),
        (["attack", "a" * 300, "--observer", "server", "--attack", "lira"], ["File name too long"]),
        (["import", "n.csv", "e.csv", "-o", ""], ["got ''; write -o my_graph.npz"]),
        (["import", "n.csv", "e.csv", "-o", "a" * 300 + ".npz"], ["must be usable", "File name too long"]),
        (["reproduce", "fedgcn-table2", "--root", "none"], ["there is no folder none"]),
        (["reproduce", "fedgcn-table2", "--out", "mine.py"], ["mine.py is a file; use another --out"]),
        (["reproduce", "--status", "--out", "none"], ["there is no folder none"]),
    ],
)
def test_what_a_user_can_fix_is_one_line_and_exit_code_2(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("empty.yaml").touch()
    Path("folder").mkdir()
    Path("mine.py").write_text("class Mine:\n    pass\n")
    monkeypatch.delenv("FGLAUDIT_DATA", raising=False)
    assert call(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert all(word in error for word in words), error
    assert not Path("runs").exists()


def test_the_list_says_which_data_sets_need_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(*options: str) -> dict[str, str]:
        assert call("data", "list", *options) == 0
        lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
        return {line[:19].strip(): line[19:29].strip() for line in lines}

    monkeypatch.delenv("FGLAUDIT_DATA", raising=False)
    Path("empty").mkdir()
    for found in (states(), states("--root", "empty")):
        assert {found[name] for name in ("csbm", "csbm-cora", "csbm-dnc", "csbm-snc", "csbm-sc")} == {"built in"}
        assert {found[name] for name in ("cora", "subcora", "subcora-published", "ogbn-arxiv")} == {"to get"}
    raw = Path("empty/planetoid/Cora/raw")
    raw.mkdir(parents=True)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (raw / f"ind.cora.{part}").touch()
    assert {states("--root", "empty")[name] for name in ("cora", "subcora", "subcora-published")} == {"here"}
    monkeypatch.setenv("FGLAUDIT_DATA", "/nope")
    for command in (("data", "list"), ("doctor",)):
        assert call(*command) == 0
        assert "FGLAUDIT_DATA is '/nope', which is no folder" in capsys.readouterr().out


def test_missing_data_are_said_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert call("run", "quickstart", "--dataset", "cora", "--root", "empty") == 2
    error = capsys.readouterr().err
    assert "cora" in error and "fglaudit data fetch cora" in error
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.full((6, 3), np.nan, np.float32)}, ["x"]),
        ({"x": np.ones((5, 3), np.float32)}, ["x"]),
        ({"edge_index": np.array([[0], [9]])}, ["9"]),
        ({"y": np.array([0, 1])}, ["y"]),
    ],
)
def test_a_users_graph_that_breaks_a_rule(
    change: dict[str, np.ndarray], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"x": np.eye(6, 3, dtype=np.float32), "y": np.arange(6) % 2, "edge_index": np.array([[0, 1, 2], [1, 2, 3]])}
    np.savez("mine.npz", **{**good, **change})  # type: ignore[arg-type]
    assert call("run", "small.yaml", "--dataset", "mine.npz") == 2
    error = capsys.readouterr().err
    assert "mine.npz" in error and all(word in error for word in words), error


def test_more_clients_than_nodes_and_bad_suites_train_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for old, new, words in [
        ("clients: 3", "clients: 61", "got 61 clients for the 60 nodes"),
        ("beta: 10000", "beta: -1", "beta"),
        ("hops: 1", "hopps: 1", "did you mean 'hops'"),
        ("observers:", "defenses: [{name: gaussian, epsilon: 0}]\nobservers:", "epsilon"),
        ("{scheme: dirichlet, clients: 3, beta: 10000}", "{scheme: overlapping}", "disjoint"),
        ("[server]", '["client:3"]', "client:0 ... client:2"),
    ]:
        Path("bad.yaml").write_text(SUITE.replace(old, new))
        assert call("run", "bad.yaml") == 2
        assert words in capsys.readouterr().err
    assert not Path("runs").exists()


def test_dry_run_lists_the_cells_and_writes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(Path().iterdir())
    assert call("run", "quickstart", "--seeds", "0,1", "--dry-run", "--quick", "--log", "run.log") == 0
    assert sorted(Path().iterdir()) == before
    out = capsys.readouterr().out
    states = [line[18:32].strip() for line in out.splitlines() if line[16:18] == "  " and " seed " in line]
    assert len(states) == int(out.split(" cells")[0].split()[-1]) > 0
    assert set(states) == {"to do", "not-applicable"}, "models alone have no sums to add noise to"
    assert "server, client:each" in out and "csbm-cora" in out and "estimate" not in out
    listed = next(line for line in out.splitlines() if line.startswith("attacks: ")).removeprefix("attacks: ")
    run = {a.name for cell in load_suite("quickstart").cells() if type(cell.protocol).emits for a in cell.attacks}
    assert set(listed.split(", ")) == run, "those that read anything in any cell, and no others"
    assert not Path("runs").exists()


def test_data_commands_on_an_embedded_and_a_users_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("data", "list") == 0
    assert "csbm-cora" in capsys.readouterr().out
    np.savez(
        "mine.npz", x=np.eye(4, dtype=np.float32), y=np.array([0, 1, 0, 1]), edge_index=np.array([[0, 1, 1], [1, 2, 2]])
    )
    assert call("data", "facts", "mine.npz") == 0
    out = capsys.readouterr().out
    assert "nodes              4" in out and "edges              2" in out
    assert "duplicate" in out and "directed" in out


def test_doctor_says_what_is_missing_and_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor") == 0
    out = capsys.readouterr().out
    assert f"fglaudit           {__version__}" in out and "device cpu" in out
    assert "fglaudit data fetch cora --root DIR" in out  # no data root in this folder


def test_ray_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert call("run", "small.yaml", "--engine", "ray") == 2
    assert "pip install 'fglaudit[ray]'" in capsys.readouterr().err


def test_list_without_a_kind_counts_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    kinds = {kind: int(count) for kind, count, *_ in lines}
    assert list(kinds) == [
        "protocols",
        "attacks",
        "defenses",
        "payloads",
        "quantities",
        "servers",
        "datasets",
        "partitions",
        "suites",
    ]
    assert kinds["attacks"] == len(registry.names("attack")) and kinds["suites"] == len(embedded())
    assert all(line[2:] == ["fglaudit", "list", line[0]] for line in lines)


def test_what_an_embedded_suite_lacks_is_changed_in_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = np.eye(8, dtype="float32"), np.arange(8) % 2
    np.savez("tiny.npz", x=x, y=y, edge_index=np.array([[0, 1, 2, 3], [1, 2, 3, 4]]))
    copy = "fglaudit show quickstart > my_suite.yaml"
    for options in ([], ["--dry-run"]):
        assert call("run", "quickstart", "--dataset", "tiny.npz", "--out", "r", *options) == 2
        error = capsys.readouterr().err
        assert "lower clients" in error and copy in error
    text = embedded()["quickstart"]
    Path("mine.yaml").write_text(text)
    assert call("run", "mine.yaml", "--dataset", "tiny.npz", "--out", "r") == 2
    assert "lower clients" in (error := capsys.readouterr().err) and "my_suite.yaml" not in error


def test_a_name_of_a_suite_with_other_letters_is_told_which_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.yaml").write_text(SUITE.replace("name: small", "name: Prüfung"), "utf-8")
    assert call("run", "odd.yaml", "--dry-run", "--quick") == 2
    told = capsys.readouterr().err
    assert "letters a to z or A to Z, digits" in told and "pattern" not in told


def test_a_disk_that_fills_up_during_a_run_says_that_finished_cells_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FglauditError, match=r"make room on the disk.* another --out$"), resumable(tmp_path):
        write_atomic(tmp_path / "findings.csv", "")
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "0123456789abcdef.json").touch()
    with pytest.raises(FglauditError, match=r"finished cells are kept in .* the same command"), resumable(tmp_path):
        write_atomic(tmp_path / "findings.csv", "")


def test_a_path_that_the_terminal_cannot_write_ends_no_command() -> None:
    """Standard output of another encoding, as on many a Windows console."""
    code = f"from fglaudit import cli; cli.app = lambda **_: print('{chr(0x6570)}'); cli.main([])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0 and done.stdout == "\\u6570\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "into"),
    [
        (["report", "runs"], "a report is written into the folder of its run"),
        (["attack", "runs", "--observer", "server", "--attack", "subset-sum"], "attacks are written into the folder"),
    ],
)
def test_a_folder_that_cannot_be_written_is_said_first_with_a_fix_that_the_command_has(
    arguments: list[str], into: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs").mkdir()
    Path("runs", "recording.json").touch()
    opened = os.open

    def read_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_CREAT and ".fglaudit-" in str(path):
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    assert call(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the folder must be writable") and into in error and "--out" not in error


@pytest.mark.parametrize(
    "arguments", [["gate", "nowhere", "policy.yaml"], ["compare", "nowhere", "there"], ["compare"]]
)
def test_a_script_that_asks_for_json_gets_errors_as_json_too(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments, "--json") == 2
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["exit_code"] == 2 and said.err == f"error: {told['error']}\n"


COMMAND = (sys.executable, "-m", "fglaudit")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "list", "attacks"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: what a command prints must be written; standard output gave 'No space left")


def test_a_reader_that_stops_is_no_failed_cell() -> None:
    with subprocess.Popen([*COMMAND, "list", "attacks"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 130
