"""Plugin files of a suite: which run, which are refused, and that nothing runs before that is settled."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from fglaudit import registry
from fglaudit.cli import main
from fglaudit.errors import FglauditError
from fglaudit.execution.display import print_plan
from fglaudit.suite.overrides import load_suite
from fglaudit.suite.plugin_files import PluginFile, Trust

PLUGIN = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from fglaudit.interfaces import Defense, DefenseSession
Path(__file__).with_name("ran").write_text("ran")

@dataclass(frozen=True)
class Mine(Defense):
    name: ClassVar[str] = "mine"
    strength: float = 1.0
    def bind(self, context):
        return DefenseSession()
"""
SUITE = """
name: small
datasets: [{name: csbm, csbm: {nodes: 60, edges: 120, dimensions: 20}}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
attacks: [row-space]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for part in ("suite/below", "elsewhere"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "mine.py").write_text(PLUGIN)
    return tmp_path


def write(folder: Path, plugin: str, pins: dict[str, str] | None = None) -> str:
    lines = f"{SUITE}defenses: [{{name: '{plugin}', strength: 2}}]\n"
    if pins is not None:
        lines += "plugins: {" + ", ".join(f"'{path}': '{digest}'" for path, digest in pins.items()) + "}\n"
    (folder / "suite" / "s.yaml").write_text(lines)
    return str(folder / "suite" / "s.yaml")


def call(*arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    with pytest.raises(SystemExit) as done:
        main(arguments)
    return int(done.value.code or 0)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_beside_the_suite_and_below_run(folder: Path) -> None:
    (suite_file := folder / "suite" / "mine.py").write_text(PLUGIN)
    for plugin in ("mine.py:Mine", "below/mine.py:Mine", "below/../mine.py:Mine", f"{suite_file}:Mine"):
        suite = load_suite(write(folder, plugin))
        assert suite.defenses[0].strength == 2.0  # type: ignore[attr-defined]
        (path, recorded), *rest = suite.plugins.items()
        assert recorded == digest(Path(path)) and not rest and recorded == registry.loaded_files()[path]
        assert suite.resolved()["plugins"] == {path: recorded}


@pytest.mark.parametrize(
    "plugin", ["../elsewhere/mine.py:Mine", "elsewhere/mine.py:Mine", "{}/elsewhere/mine.py:Mine", "linked.py:Mine"]
)
def test_files_elsewhere_are_refused_before_they_run(folder: Path, plugin: str) -> None:
    elsewhere = folder / "elsewhere" / "mine.py"
    (folder / "suite" / "linked.py").symlink_to(elsewhere)
    name = plugin.format(folder)
    for trust in (Trust(), Trust(imports=False)):
        with pytest.raises(FglauditError, match="lies elsewhere") as caught:
            load_suite(write(folder, name), trust=trust)
        assert digest(elsewhere) in str(caught.value) and "--trust-plugins" in str(caught.value)
    assert not (folder / "elsewhere" / "ran").exists()
    assert load_suite(write(folder, name, {name.rpartition(":")[0]: digest(elsewhere)})).defenses
    assert (folder / "elsewhere" / "ran").exists()
    assert load_suite(write(folder, name), trust=Trust(everywhere=True)).defenses


def test_a_pinned_file_must_have_the_pinned_content(folder: Path) -> None:
    beside = folder / "suite" / "below" / "mine.py"
    for wrong, words in (
        ("0" * 64, "must be the one that the suite names"),
        ("x", "64 hex digits"),
        ("", "64 hex digits"),
    ):
        for trust in (Trust(), Trust(everywhere=True), Trust(imports=False)):
            with pytest.raises(FglauditError, match=words):
                load_suite(write(folder, "below/mine.py:Mine", {"below/mine.py": wrong}), trust=trust)
    with pytest.raises(FglauditError, match="does not use"):
        load_suite(write(folder, "below/mine.py:Mine", {"other.py": digest(beside)}))
    assert not (beside.parent / "ran").exists()
    assert load_suite(write(folder, "below/mine.py:Mine", {"below/mine.py": digest(beside)})).defenses


def test_a_dry_run_plans_without_running_anything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[PluginFile] = []
    suite = load_suite(write(folder, "below/mine.py:Mine"), trust=Trust(imports=False, announce=seen.extend))
    print_plan(Console(width=200), suite, folder / "out")
    assert "1 cell" in capsys.readouterr().out
    assert [file.sha256 for file in seen] == [digest(folder / "suite" / "below" / "mine.py")]
    assert not (folder / "suite" / "below" / "ran").exists()
    with pytest.raises(FglauditError, match="did you mean 'Mine'"):
        load_suite(write(folder, "below/mine.py:Mime"), trust=Trust(imports=False))
    (folder / "suite" / "broken.py").write_text("class Mine(:")
    with pytest.raises(FglauditError, match="must be Python"):
        load_suite(write(folder, "broken.py:Mine"), trust=Trust(imports=False))


def test_a_dry_run_runs_no_part_of_a_stack(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part is a defense like any other: what is not imported alone is not imported in a stack."""
    lines = SUITE + "defenses: [{stack: [{name: 'below/mine.py:Mine', strength: 2}, {name: gaussian, epsilon: 8}]}]\n"
    (folder / "suite" / "s.yaml").write_text(lines)
    suite = load_suite(str(folder / "suite" / "s.yaml"), trust=Trust(imports=False))
    print_plan(Console(width=200), suite, folder / "out")
    assert "not yet known" in capsys.readouterr().out
    assert not (folder / "suite" / "below" / "ran").exists()
    assert load_suite(str(folder / "suite" / "s.yaml")).defenses[0].parts[0].strength == 2.0  # type: ignore[attr-defined]


def test_the_command_prints_path_and_sum_and_records_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite, file = write(folder, "below/mine.py:Mine"), folder / "suite" / "below" / "mine.py"
    line = f"plugin file: {file}  sha256 {digest(file)}"
    assert call("run", suite, "--out", "out", "--dry-run") == 0
    assert line in capsys.readouterr().out and not (file.parent / "ran").exists()
    assert call("run", write(folder, "../elsewhere/mine.py:Mine"), "--out", "out") == 2
    assert not (folder / "out").exists()
    assert call("run", write(folder, "below/mine.py:Mine"), "--out", "out", "--device", "cpu", "--jobs", "1") == 0
    assert line in capsys.readouterr().out
    assert json.loads((folder / "out" / "run.json").read_text())["plugins"][str(file)] == digest(file)


def test_what_was_announced_is_what_runs(folder: Path) -> None:
    """A file that changes after its sum was taken is refused, in this process and in a worker."""
    file = folder / "suite" / "below" / "mine.py"

    def swap(files: Any) -> None:
        file.write_text(PLUGIN + "# changed\n")

    with pytest.raises(FglauditError, match="stays the same while a run lasts"):
        load_suite(write(folder, "below/mine.py:Mine"), trust=Trust(announce=swap))
    assert not (file.parent / "ran").exists()
    load_suite(write(folder, "below/mine.py:Mine"))
    try:
        file.write_text(PLUGIN + "# changed again\n")
        with pytest.raises(FglauditError, match="stays the same while a run lasts"):
            registry.loaded_files()
        with pytest.raises(FglauditError, match="stays the same while a run lasts"):
            registry.load_files({str(file): "0" * 64})
    finally:
        file.write_text(PLUGIN + "# changed\n")


def test_no_compiled_copy_runs_in_place_of_the_text(folder: Path) -> None:
    """Python's own import would take a stale ``__pycache__`` file whose stamp fits."""
    file = folder / "suite" / "below" / "mine.py"
    load_suite(write(folder, "below/mine.py:Mine"))
    assert not list(folder.rglob("__pycache__")) and file.exists()


def test_a_file_that_imports_its_neighbor_is_told_that_it_cannot(folder: Path) -> None:
    (folder / "suite" / "taker.py").write_text("from neighbor_of_mine import Mine\n")
    (folder / "suite" / "neighbor_of_mine.py").write_text(PLUGIN)
    with pytest.raises(FglauditError, match="plugin files cannot import one another: put both into one file"):
        load_suite(write(folder, "taker.py:Mine"))


@pytest.mark.parametrize("kind", ["pipe", "folder", "zero", "huge", "missing", "unreadable text"])
def test_paths_that_are_no_plugin_files(folder: Path, kind: str) -> None:
    path = folder / "suite" / "odd.py"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "zero":
            path.symlink_to("/dev/zero")
        case "huge":
            with path.open("wb") as file:
                file.truncate(2**40)
        case "unreadable text":
            path.write_bytes(b"\xff\xfe\x00class")
    for trust in (Trust(everywhere=True), Trust(everywhere=True, imports=False)):
        with pytest.raises(FglauditError, match="plugin"):
            load_suite(write(folder, "odd.py:Mine"), trust=trust)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_characters="'\n\r", exclude_categories=("Cs", "Cc")), max_size=40))
def test_any_name_of_a_file_is_a_plugin_or_one_message(folder: Path, text: str) -> None:
    for name in (f"{text}.py:Mine", f"~{text}.py:X", f"{text * 60}.py:X"):
        with pytest.raises(FglauditError):
            load_suite(write(folder, name))
