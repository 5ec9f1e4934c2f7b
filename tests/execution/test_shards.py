"""Several processes compute one run in one folder."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from execution_runs import run, suite

from fglaudit.cli import main
from fglaudit.errors import FglauditError
from fglaudit.execution.folder.shards import Claims, Shard, held
from fglaudit.finding import NOT_RUN, Status

SEEDS = [0, 1, 2, 3, 4]


def rows(folder: Path) -> list[dict[str, str]]:
    """Return the findings without what differs between two runs."""
    with (folder / "findings.csv").open() as file:
        return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in csv.DictReader(file)]


def process(code: str) -> subprocess.Popen[str]:
    """Start Python with what the tests of this folder can import."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/", "a/b", "-1/2", "1/99999", "1/2/3", "01/2", ""])
def test_no_shard(text: str) -> None:
    with pytest.raises(FglauditError, match="--shard is i/N"):
        Shard.parse(text)


def test_shards_are_a_partition() -> None:
    cells = [str(n) for n in range(7)]
    parts = [Shard.parse(f"{i}/3").part(cells) for i in (1, 2, 3)]
    assert parts == [["0", "3", "6"], ["1", "4"], ["2", "5"]]


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    """Both begin a folder that is not there; what they find together is what one process finds."""
    code = (
        "from pathlib import Path; from execution_runs import run, suite;"
        "from fglaudit.execution.folder.shards import Shard;"
        "records, _ = run(suite(seeds={seeds}), Path({folder!r}), shard=Shard({i}, 2)); print(len(records))"
    )
    both = [process(code.format(seeds=SEEDS, folder=str(tmp_path / "shards"), i=i)) for i in (1, 2)]
    printed = [one.communicate(timeout=300)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], printed
    assert [text.split()[-1] for text in printed] == ["3", "2"]
    run(suite(seeds=SEEDS), tmp_path / "whole")
    assert rows(tmp_path / "shards") == rows(tmp_path / "whole")
    assert not (tmp_path / "shards" / ".spool" / "1-of-2").exists()


def test_a_shard_computes_its_cells_and_reports_the_others_as_not_run(tmp_path: Path) -> None:
    records, _ = run(suite(seeds=SEEDS), tmp_path, shard=Shard(2, 2))
    assert len(records) == 2
    assert all(row.status is not Status.FAILED for record in records for row in record.findings)
    reasons = {row["reason"] for row in rows(tmp_path) if row["status"] == "failed"}
    assert reasons == {NOT_RUN}
    everything, said = run(suite(seeds=SEEDS), tmp_path)
    assert len(everything) == 5 and "2 of 5 cells are finished already" in said


def test_one_process_per_shard_and_no_whole_run_beside(tmp_path: Path) -> None:
    run(suite(seeds=SEEDS), tmp_path, shard=Shard(1, 2))
    with held(tmp_path, Shard(1, 2)):
        with pytest.raises(FglauditError, match=r"1/2 of .* is running already"):
            run(suite(seeds=SEEDS), tmp_path, shard=Shard(1, 2))
        with pytest.raises(FglauditError, match=r"shard 1/2 of .* is being computed"):
            run(suite(seeds=SEEDS), tmp_path)
        assert len(run(suite(seeds=SEEDS), tmp_path, shard=Shard(2, 2))[0]) == 2


def test_a_cell_that_another_process_has_is_left_alone(tmp_path: Path) -> None:
    """As where one process has 1/2 and another 1/3."""
    what = suite(seeds=SEEDS)
    cells = [cell.hash() for cell in what.cells()]
    run(what, tmp_path, shard=Shard(5, 5))
    other = Claims(tmp_path)
    assert other.take(cells[0]) and other.take(cells[0])
    first, *rest = run(what, tmp_path, shard=Shard(1, 2))[0]
    assert {row.reason for row in first.findings} == {NOT_RUN}
    assert all(row.status is not Status.FAILED for record in rest for row in record.findings)
    other.release_all()
    assert len([r for r in run(what, tmp_path, shard=Shard(1, 1))[0] if r.findings[0].reason == NOT_RUN]) == 0


def test_workers_are_not_given_what_another_process_has(tmp_path: Path) -> None:
    what = suite(seeds=SEEDS)
    run(what, tmp_path, shard=Shard(5, 5))
    other = Claims(tmp_path)
    assert all(other.take(cell.hash()) for cell in what.cells()[::2])
    records, _ = run(what, tmp_path, jobs=2, shard=Shard(1, 1))
    assert [record.findings[0].reason == NOT_RUN for record in records] == [True, False, True, False, False]


def test_a_killed_process_loses_its_claims(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from fglaudit.execution.folder.shards import Claims; import time;"
        f"claims = Claims(Path({str(tmp_path)!r})); print(claims.take('a'), flush=True); time.sleep(600)"
    )
    one = process(code)
    assert one.stdout is not None and one.stdout.readline().strip() == "True"
    assert not Claims(tmp_path).take("a")
    one.kill()
    one.wait()
    assert Claims(tmp_path).take("a")


def test_what_a_shard_prints_is_said_to_be_of_its_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its table said that "1 more seed would do", of a seed that another shard had."""
    what, out = suite(seeds=SEEDS), tmp_path / "out"
    run(what, out, shard=Shard(1, 2))
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(what.resolved()))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "small.yaml"), "--out", str(out), "--shard", "1/2", "--device", "cpu"])
    said = capsys.readouterr().out
    assert ended.value.code == 0 and "3 of 3 cells are finished already" in said
    told = f"this is shard 1/2, 3 of {len(SEEDS)} cells; for all, once they ran: fglaudit report {out}"
    assert told in said
