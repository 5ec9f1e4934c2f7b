"""Runs what a run chose again, unchanged, on seeds that took no part in the choice: ``RUN/confirmed``.

Each chosen setting becomes a suite of one setting, and its run a folder like any other, which ``fglaudit report``,
``gate`` and ``compare`` read. The reports of the run itself then say what fresh seeds found.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fglaudit.errors import FglauditError
from fglaudit.execution.display import say
from fglaudit.execution.engines.engine import Engine
from fglaudit.execution.folder.run_folder import CONFIRMED
from fglaudit.finding import CellRecord
from fglaudit.reports.choosing.choice import chosen, seeds_for
from fglaudit.reports.records import Run, load_run
from fglaudit.reports.summary import Setting, summarize
from fglaudit.run import run_suite, write_outputs
from fglaudit.suite.suite import Suite

NOTHING = (
    "nothing was chosen, so there is nothing to confirm: under every setting some attack on features succeeded, was"
    " ahead of its guess, or could not be tried"
)


def confirm_chosen(
    suite: Suite,
    directory: Path,
    engine: Engine,
    device: str,
    console: Console,
    *,
    seeds: int = 1,
    secret: bool = False,
) -> tuple[Run, list[CellRecord]]:
    """Run the settings that the run in ``directory`` chose on fresh seeds, and write its reports again.

    Args:
        suite: of the run in ``directory``, which is finished.
        seeds: how many fresh ones at the least; more where a verdict without a single hit takes more parties.

    Returns:
        The run, with what was confirmed, and the records of the fresh seeds.

    Raises:
        FglauditError: cells of the run failed or are missing, so that nothing can be chosen yet.
    """
    run = load_run(directory)
    if run.missing or run.unreadable:
        raise FglauditError(
            f"only a finished run can be confirmed; {directory} lacks {len(run.missing)} cells and has"
            f" {len(run.unreadable)} damaged files; continue it first"
        )
    settings = chosen(summarize(run))
    if not settings:
        console.print(NOTHING, highlight=False, soft_wrap=True)
        return run, []
    records: list[CellRecord] = []
    for setting in settings:
        alone = fresh_suite(suite, setting, seeds, secret=secret)
        drawn = ", ".join(map(str, alone.seeds))
        about = f"{setting.first.protocol}, {setting.first.defense} {setting.first.defense_args}".rstrip()
        say(console, f"confirming {about} on seeds {drawn}")
        records += run_suite(
            alone,
            directory / CONFIRMED / _folder(setting, len(alone.seeds)),
            engine,
            device,
            console,
            secret=secret,
        )
    return write_outputs(directory), records


def fresh_suite(suite: Suite, setting: Setting, least: int, *, secret: bool = False) -> Suite:
    """Return the suite of ``setting`` alone, on at least so many seeds beyond those of ``suite``."""
    cells = [dataclasses.replace(cell, secret=secret) for cell in suite.cells()]
    [cell, *_] = [cell for cell in cells if cell.hash() == setting.records[0].cell]
    return dataclasses.replace(
        suite,
        name=f"{suite.name}-confirmed",
        datasets=(cell.dataset,),
        partitions=(cell.partition,),
        protocols=(cell.protocol,),
        left_open=(),
        server=(cell.behaviour,),
        defenses=(cell.defense,),
        seeds=fresh_seeds(suite.seeds, seeds_for(setting, least)),
    )


def fresh_seeds(used: Sequence[int], number: int) -> tuple[int, ...]:
    """Return ``number`` seeds in a row that follow all that were used."""
    return tuple(range(max(used) + 1, max(used) + 1 + number))


def _folder(setting: Setting, seeds: int) -> str:
    """Name the folder of a setting's fresh run: readable, and different for settings that differ."""
    digest = hashlib.blake2b(setting.key.encode(), digest_size=4).hexdigest()
    return f"{setting.first.protocol}-{setting.first.defense}-{digest}-{seeds}-seeds"
