"""``fglaudit run``."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fglaudit.commands.options import DeviceOption, RootOption, refuse_less_than_one
from fglaudit.commands.output import console, end, results
from fglaudit.errors import FglauditError, printable
from fglaudit.execution.exit_code import ExitCode, troubles
from fglaudit.interruption import EXIT, interrupt

MACHINES = "Processes and machines"


def run(
    suite: Annotated[str, typer.Argument(help="Embedded suite (fglaudit list suites) or a YAML file.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; by default runs/NAME.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Replace the suite's data sets (may be repeated).")] = None,
    root: RootOption = None,
    seeds: Annotated[str | None, typer.Option(help="Replace the suite's seeds: 0,1,2 or 0-9.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=MACHINES, help="Cells computed at the same time; by default one per core, one on a GPU."
        ),
    ] = None,
    engine: Annotated[str, typer.Option(rich_help_panel=MACHINES, help="local (processes here) or ray.")] = "local",
    address: Annotated[
        str, typer.Option(rich_help_panel=MACHINES, help="Ray cluster to use; by default Ray is started here.")
    ] = "",
    gpus: Annotated[
        float, typer.Option(rich_help_panel=MACHINES, help="GPUs that Ray gives each cell; 0.5: two cells share one.")
    ] = 0.0,
    memory: Annotated[
        float, typer.Option(rich_help_panel=MACHINES, help="GiB that Ray sets aside for each cell.")
    ] = 0.0,
    device: DeviceOption = "auto",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check the suite, open data and partitions, estimate seconds, memory and disk; run no plugin file.",
        ),
    ] = False,
    trust_plugins: Annotated[
        bool, typer.Option("--trust-plugins", help="Run the suite's plugin files that lie outside of its folder.")
    ] = False,
    secret: Annotated[
        bool, typer.Option("--secret", help="Draw the noise with a key of this run that nobody is told.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Audit no guarantee by replays: it is then claimed, never verified. With --dry-run: estimate nothing.",
        ),
    ] = False,
    confirm: Annotated[
        int | None,
        typer.Option(
            help="Then run the settings that come out best again, on so many fresh seeds, or as many as it takes."
        ),
    ] = None,
    cell_timeout: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=MACHINES, help="Seconds after which a cell is ended and counts as failed; by default never."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but what went wrong.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print every finding of a finished cell.")] = False,
    log: Annotated[Path | None, typer.Option(help="Append what happens to this file, with the time.")] = None,
    shard: Annotated[
        str,
        typer.Option(
            rich_help_panel=MACHINES,
            help="i/N: compute every N-th cell; other processes compute the others in the same --out.",
        ),
    ] = "",
) -> None:
    """Train, attack and report. The same command continues a run that was stopped; failed cells are tried again."""
    from fglaudit.execution.engine import default_jobs
    from fglaudit.execution.engines import make_engine
    from fglaudit.execution.preflight import UnfitPartitionError
    from fglaudit.execution.run_folder import check_ours, run_folder
    from fglaudit.execution.shards import Shard
    from fglaudit.suite.cell import UNKNOWN_HASH
    from fglaudit.suite.embedded import how_to_copy
    from fglaudit.suite.overrides import load_suite, output_folder, pick_device
    from fglaudit.suite.plugin_files import PluginFile, Trust

    def copied(error: FglauditError) -> FglauditError:
        copy = how_to_copy(suite)
        return FglauditError(f"{error}; {copy}") if copy else error

    refuse_less_than_one("--confirm", confirm, "leave it out to confirm nothing")
    screen = console()
    screen.quiet = quiet

    def announce(files: Sequence[PluginFile]) -> None:
        for file in files:
            screen.print(
                f"plugin file: {file.path}  sha256 {file.sha256}", markup=False, highlight=False, soft_wrap=True
            )

    trust = Trust(everywhere=trust_plugins, imports=not dry_run, announce=announce)
    resolved = load_suite(suite, datasets=dataset or (), root=root, seeds=seeds, trust=trust)
    if quick:
        resolved = dataclasses.replace(resolved, empirical=False)
    directory = out or output_folder(resolved, dataset or ())
    part = Shard.parse(shard) if shard else None
    if confirm is not None and part is not None:
        raise FglauditError(
            f"what a run chose is known once all its cells are there; got --confirm with --shard {shard}; give"
            " --confirm in a last command without --shard"
        )
    chosen = pick_device(device, elsewhere=gpus > 0)
    if jobs is None:
        jobs = default_jobs(len(resolved.cells()), chosen)
    chosen_engine = make_engine(engine, jobs, address=address, cell_timeout=cell_timeout, gpus=gpus, memory=memory)
    check_ours(run_folder(directory))  # what a run refuses at once, --dry-run refuses too
    if dry_run:
        from fglaudit.execution.display import print_plan
        from fglaudit.execution.dry_run import FAILS, opened
        from fglaudit.execution.growing import check_goes_on

        cells = [dataclasses.replace(cell, secret=secret).hash() for cell in resolved.cells()]
        if UNKNOWN_HASH not in cells:
            check_goes_on(directory, resolved, cells, sharded=part is not None)
        print_plan(screen, resolved, directory, secret=secret)
        interrupt()
        lines = []
        try:
            for line in opened(resolved, estimates=not quick):
                lines.append(printable(line))
                screen.print(lines[-1], markup=False, highlight=False, soft_wrap=True)
        except UnfitPartitionError as error:
            raise copied(error) from error
        if any(line.startswith(FAILS) for line in lines):
            if copy := how_to_copy(suite):
                screen.print(copy, markup=False, highlight=False, soft_wrap=True)
            raise SystemExit(int(ExitCode.FAILED))
        return

    from fglaudit.execution.failures import failures_table
    from fglaudit.execution.stored_run import failed_rows
    from fglaudit.reports.console import print_answers
    from fglaudit.reports.records import Run
    from fglaudit.run import ERRORS, run_suite

    try:
        interrupt()
        records = run_suite(
            resolved,
            directory,
            chosen_engine,
            chosen,
            screen,
            secret=secret,
            shard=part,
            log=log,
            verbose=verbose,
        )
    except UnfitPartitionError as error:
        raise copied(error) from error
    except KeyboardInterrupt:
        command = shlex.join(["fglaudit", *sys.argv[1:]])
        print(f"\nstopped; finished cells are kept in {directory}; continue with: {command}", file=sys.stderr)
        raise SystemExit(EXIT) from None
    print_answers(screen, Run(resolved.name, tuple(records), planned=True))
    if confirm is not None:
        from fglaudit.commands.confirming import confirm_chosen
        from fglaudit.reports.console import print_confirmed

        whole, fresh = confirm_chosen(resolved, directory, chosen_engine, chosen, screen, seeds=confirm, secret=secret)
        records += fresh
        print_confirmed(screen, whole)
    failed = failed_rows(records)
    if failed:
        screen.print(failures_table(failed))
        if copy := how_to_copy(suite):
            screen.print(copy, markup=False, highlight=False, soft_wrap=True)
    screen.print(results(directory), markup=False, highlight=False, soft_wrap=True)
    end(troubles(records, f"tracebacks: {directory / ERRORS}; the same command tries them again"))
