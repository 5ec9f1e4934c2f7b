"""``fglaudit run``."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fglaudit.commands.options import DeviceOption, RootOption, refuse_less_than_one
from fglaudit.commands.output import console, end, results
from fglaudit.commands.run_options import (
    AddressOption,
    CellTimeoutOption,
    ConfirmOption,
    DatasetOption,
    DryRunOption,
    EngineOption,
    GpusOption,
    JobsOption,
    LogOption,
    MemoryOption,
    OutOption,
    QuickOption,
    QuietOption,
    SecretOption,
    SeedsOption,
    ShardOption,
    SuiteArgument,
    TrustOption,
    VerboseOption,
)
from fglaudit.errors import FglauditError, counted
from fglaudit.execution.exit_code import ExitCode, none_applies, nothing_applied, troubles
from fglaudit.interruption import EXIT, interrupt

if TYPE_CHECKING:
    from rich.console import Console

    from fglaudit.execution.folder.shards import Shard
    from fglaudit.finding import CellRecord
    from fglaudit.suite.plugin_files import PluginFile
    from fglaudit.suite.suite import Suite


def run(
    suite: SuiteArgument,
    out: OutOption = None,
    dataset: DatasetOption = None,
    root: RootOption = None,
    seeds: SeedsOption = None,
    jobs: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = "",
    gpus: GpusOption = 0.0,
    memory: MemoryOption = 0.0,
    device: DeviceOption = "auto",
    dry_run: DryRunOption = False,
    trust_plugins: TrustOption = False,
    secret: SecretOption = False,
    quick: QuickOption = False,
    confirm: ConfirmOption = None,
    cell_timeout: CellTimeoutOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    log: LogOption = None,
    shard: ShardOption = "",
) -> None:
    """Train, attack and report. The same command continues a run that was stopped; failed cells are tried again."""
    from fglaudit.execution.engines.by_name import make_engine
    from fglaudit.execution.engines.engine import default_jobs
    from fglaudit.execution.folder.run_folder import check_ours, check_place, run_folder
    from fglaudit.execution.folder.shards import Shard
    from fglaudit.execution.log_file import check_log
    from fglaudit.suite.overrides import load_suite, output_folder, pick_device
    from fglaudit.suite.plugin_files import Trust

    refuse_less_than_one("--confirm", confirm, "leave it out to confirm nothing")
    _refuse_confirming_a_part(confirm, shard)
    screen = console()
    screen.quiet = quiet
    trust = Trust(everywhere=trust_plugins, imports=not dry_run, announce=partial(_announce, screen))
    resolved = load_suite(suite, datasets=dataset or (), root=root, seeds=seeds, trust=trust)
    if quick:
        resolved = dataclasses.replace(resolved, empirical=False)
    directory = out or output_folder(resolved, dataset or ())
    part = Shard.parse(shard) if shard else None
    chosen = pick_device(device, elsewhere=gpus > 0)
    jobs = default_jobs(len(resolved.cells()), chosen) if jobs is None else jobs
    chosen_engine = make_engine(engine, jobs, address=address, cell_timeout=cell_timeout, gpus=gpus, memory=memory)
    check_ours(run_folder(directory))  # what a run refuses at once, --dry-run refuses too
    if dry_run:
        check_place(run_folder(directory))
        if log is not None:
            check_log(log)
        _dry_run(screen, suite, resolved, directory, secret=secret, sharded=part is not None, estimates=not quick)
        return

    from fglaudit.reports.formats.console import print_answers, print_confirmed
    from fglaudit.reports.records import Run
    from fglaudit.run import run_suite

    with _copy_named(suite), resumable(directory):
        interrupt()
        records = run_suite(
            resolved, directory, chosen_engine, chosen, screen, secret=secret, shard=part, log=log, verbose=verbose
        )
    print_answers(screen, Run(resolved.name, tuple(records), planned=True))
    if confirm is not None:
        from fglaudit.commands.confirming import confirm_chosen

        whole, fresh = confirm_chosen(resolved, directory, chosen_engine, chosen, screen, seeds=confirm, secret=secret)
        records += fresh
        print_confirmed(screen, whole)
    if part is not None:
        _say_part(screen, part, len(records), len(resolved.cells()), directory)
    _conclude(screen, suite, directory, records, whole=part is None)


def _refuse_confirming_a_part(confirm: int | None, shard: str) -> None:
    if confirm is not None and shard:
        raise FglauditError(
            f"what a run chose is known once all its cells are there; got --confirm with --shard {shard}; give"
            " --confirm in a last command without --shard"
        )


def _announce(screen: Console, files: Sequence[PluginFile]) -> None:
    from fglaudit.execution.display import say

    for file in files:
        say(screen, f"plugin file: {file.path}  sha256 {file.sha256}")


def _dry_run(
    screen: Console, name: str, suite: Suite, directory: Path, *, secret: bool, sharded: bool, estimates: bool
) -> None:
    """Print the plan of ``suite``, which the command line calls ``name``, and what its data and cells come to.

    Raises:
        FglauditError: what a run would refuse.
        SystemExit: with the code of failed cells where some would fail.
    """
    from fglaudit.execution.display import print_plan, say
    from fglaudit.execution.dry_run import foretold, opened
    from fglaudit.execution.folder.growing import check_goes_on
    from fglaudit.suite.cell import UNKNOWN_HASH

    cells = [dataclasses.replace(cell, secret=secret).hash() for cell in suite.cells()]
    if UNKNOWN_HASH not in cells:
        check_goes_on(directory, suite, cells, sharded=sharded)
    interrupt()
    try:
        with _copy_named(name):
            found = opened(suite)
    except FglauditError:  # what is planned is known all the same
        print_plan(screen, suite, directory, secret=secret)
        raise
    print_plan(screen, suite, directory, secret=secret, unserved=found.unserved)
    for line in found.lines:
        say(screen, line.text)
    if len(found.unserved) == len(cells):
        raise FglauditError(none_applies(list(found.unserved.values())))
    fails = any(line.fails for line in found.lines)
    for line in foretold(suite, found) if estimates else ():
        say(screen, line.text)
        fails |= line.fails
    if fails:
        _say_how_to_copy(screen, name)
        raise SystemExit(int(ExitCode.FAILED))


def _say_part(screen: Console, part: Shard, mine: int, every: int, directory: Path) -> None:
    """Print that what stands above is about ``part`` alone: its words about seeds and parties are those of a part."""
    from fglaudit.execution.display import say

    of_all = f"this is shard {part.number}/{part.of}, {mine} of {counted(every, 'cell')}"
    say(screen, f"{of_all}; for all, once they ran: fglaudit report {shlex.quote(str(directory))}")


def _conclude(screen: Console, name: str, directory: Path, records: Sequence[CellRecord], *, whole: bool) -> None:
    """Print which cells failed and where the report is, and end with the exit code that ``records`` ask for, which are
    those of a ``whole`` suite or of a shard."""
    from fglaudit.execution.display import say
    from fglaudit.execution.failures import failures_table
    from fglaudit.execution.folder.stored_run import failed_rows
    from fglaudit.run import ERRORS

    if failed := failed_rows(records):
        screen.print(failures_table(failed))
        _say_how_to_copy(screen, name)
    say(screen, results(directory))
    idle = nothing_applied(records) if whole else []
    end([*idle, *troubles(records, f"tracebacks: {directory / ERRORS}; the same command tries them again")])


@contextmanager
def _copy_named(name: str) -> Iterator[None]:
    """Add to errors of data that do not fit the suite how a built-in one is copied, to be changed."""
    from fglaudit.execution.preflight import UnfitPartitionError
    from fglaudit.suite.embedded import how_to_copy

    try:
        yield
    except UnfitPartitionError as error:
        copy = how_to_copy(name)
        raise (FglauditError(f"{error}; {copy}") if copy else error) from error


@contextmanager
def resumable(directory: Path) -> Iterator[None]:
    """Say on Ctrl-C how the run in ``directory`` is continued, and end; where it cannot be written any more (a full
    disk), that what is finished is not lost."""
    from fglaudit.files.own import UnwrittenError

    try:
        yield
    except UnwrittenError as error:
        if not any((directory / "cells").glob("*.json")):
            raise
        raise FglauditError(
            f"{error}; finished cells are kept in {directory}: after that the same command goes on"
        ) from error
    except KeyboardInterrupt:
        command = shlex.join(["fglaudit", *sys.argv[1:]])
        print(f"\nstopped; finished cells are kept in {directory}; continue with: {command}", file=sys.stderr)
        raise SystemExit(EXIT) from None


def _say_how_to_copy(screen: Console, name: str) -> None:
    from fglaudit.execution.display import say
    from fglaudit.suite.embedded import how_to_copy

    if copy := how_to_copy(name):
        say(screen, copy)
