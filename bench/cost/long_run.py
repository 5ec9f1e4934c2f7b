"""How long runs behave: size of ``run.json``, seconds to continue, seconds and size of the report, seconds to open it.

The cells are not trained: their records are made up, as only their number matters here. ``python -m
bench.cost.long_run`` takes 10,000 cells of 200 settings, ``python -m bench.cost.long_run 1000 1000`` a run of 1,000
cells of 1,000 settings. A run of 10,000 cells is to have a ``run.json`` below 5 MB, to be continued within 5 s, and to
have its report within 10 s and below 3 MB; the report of 1,000 settings is to be below 3 MB too and to open within 2 s
(in headless Chromium, where it is installed). Seconds of CPU say more than seconds where other work goes on beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fglaudit.execution.engines.engine import Engine, Listener
from fglaudit.execution.engines.worker import Runner, Task
from fglaudit.execution.folder.run_folder import check_ours
from fglaudit.execution.folder.store import open_run
from fglaudit.execution.folder.stored_record import record_text
from fglaudit.execution.rows import blank_record
from fglaudit.finding import Status
from fglaudit.run import write_outputs
from fglaudit.suite.suite import resolve

CELLS, SETTINGS = 10_000, 200


class Nothing(Engine):
    """Computes nothing: every cell is finished."""

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        assert not tasks


def main(count: int = CELLS, settings: int = SETTINGS) -> None:
    suite = resolve(
        {
            "name": "long",
            "datasets": [{"name": "csbm", "csbm": {"nodes": 60, "edges": 120, "dimensions": 20}}],
            "partitions": [{"scheme": "dirichlet", "clients": 3, "beta": 10000}],
            "protocols": [{"name": "fedgcn", "hops": hops, "rounds": 2} for hops in (1, 2)],
            "defenses": [{"name": "gaussian", "epsilon": {"sweep": [0.1 * i for i in range(1, settings // 2 + 1)]}}],
            "observers": [{"parties": ["server"]}, {"parties": ["client:each"]}],
            "attacks": ["row-space", "subset-sum"],
            "seeds": list(range(count // settings)),
        },
        "long",
    )
    cells = suite.cells()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        with open_run(folder, suite, cells) as store:
            for number, (cell_hash, cell) in enumerate(store.cells.items()):
                blank = blank_record(cell, suite.name, Status.OK, "")
                value = (number % 97) / 97
                rows = tuple(
                    replace(
                        f, accuracy=0.5 + value / 3, value=value, control=0.0, advantage=value, metric="exact_rate",
                        advantage_low=max(0.0, value - 0.1), advantage_high=min(1.0, value + 0.1), targets=20,
                        adapted="yes", interval="range", device="cpu", exact_rate=value,
                    )
                    for f in blank.findings
                )  # fmt: skip
                history = {"accuracy": [value] * 100}
                text = record_text(replace(blank, findings=rows, history=history), store.made)
                store.record_path(cell_hash).write_text(text)  # without the flush to disk of a real run
        size = (folder / "run.json").stat().st_size
        print(f"{len(cells)} cells; run.json {size / 1e6:.2f} MB", flush=True)
        start, work = time.monotonic(), time.process_time()
        again = suite.cells()
        check_ours(folder)
        with open_run(folder, suite, again) as store:
            finished = store.finished()
        print(f"continued in {_passed(start, work)}, {len(finished)} finished", flush=True)
        start, work = time.monotonic(), time.process_time()
        write_outputs(folder)
        passed = _passed(start, work)
        sizes = {p: (folder / p).stat().st_size / 1e6 for p in ("report.html", "report.md", "findings.csv")}
        print(f"report in {passed}; " + ", ".join(f"{p} {s:.2f} MB" for p, s in sizes.items()), flush=True)
        if (seconds := _opened(folder / "report.html")) is not None:
            print(f"the page opens in {seconds:.1f} s of CPU, Chromium's own start left out", flush=True)


def _opened(page: Path) -> float | None:
    """Return by how many seconds of CPU headless Chromium takes longer for ``page`` than for an empty one."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        return None
    empty = page.with_name("empty.html")
    empty.write_text("<!doctype html><title>empty</title>")
    took = {}
    for one in (empty, page, empty, page):  # the first start reads Chromium from disk: the second ones count
        start = os.times()
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", one.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        end = os.times()
        took[one] = end.children_user + end.children_system - start.children_user - start.children_system
    return took[page] - took[empty]


def _passed(start: float, work: float) -> str:
    return f"{time.monotonic() - start:.1f} s ({time.process_time() - work:.1f} s of CPU)"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.cost.long_run", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=CELLS, help="cells")
    parser.add_argument("settings", type=int, nargs="?", default=SETTINGS)
    options = parser.parse_args()
    main(options.count, options.settings)
