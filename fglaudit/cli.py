"""The command line. Commands import heavy modules themselves, so that ``--help``, ``--version`` and ``list`` are quick.

Exit codes are those of :mod:`fglaudit.execution.exit_code`; 130 where a signal interrupted the command.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fglaudit import __version__, tool_commands
from fglaudit.data_commands import RootOption, data_app
from fglaudit.errors import FglauditError, printable, unknown
from fglaudit.execution.exit_code import ExitCode, Trouble, combined, troubles
from fglaudit.interruption import EXIT, end_at_once, interrupt
from fglaudit.tool_commands import DeviceOption

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="fglaudit",
    help=(
        "Audit the privacy of federated graph learning: train, record every message, attack exactly those messages,"
        " report."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.add_typer(data_app, name="data")
app.command()(tool_commands.gate)
app.command("import")(tool_commands.import_graph)
app.command()(tool_commands.new)
app.command()(tool_commands.check)
app.command("audit-mechanism")(tool_commands.audit_mechanism)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; every error a user can fix is one message on stderr and exit code 2."""
    end_at_once()
    try:
        app(args=arguments, prog_name="fglaudit")
    except FglauditError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(int(ExitCode.INPUT)) from error


def _end(troubles: Sequence[Trouble]) -> None:
    """Say on stderr what went wrong, and end with the gravest exit code, if there is one."""
    for trouble in troubles:
        print(f"error: {trouble.text}", file=sys.stderr)
    if code := combined(trouble.code for trouble in troubles):
        raise SystemExit(int(code))


def _results(folder: Path) -> str:
    return printable(f"report: {folder / 'report.html'}   findings: {folder / 'findings.csv'}")


def _console() -> Console:
    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=200)  # a file or pipe has no width of its own; 80 would truncate the tables
    return console


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fglaudit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help="Embedded suite (fglaudit list suites) or a YAML file.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; by default runs/NAME.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Replace the suite's data sets (may be repeated).")] = None,
    root: RootOption = None,
    seeds: Annotated[str | None, typer.Option(help="Replace the suite's seeds: 0,1,2 or 0-9.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Cells computed at the same time; by default one per core, one on a GPU.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local (processes here) or ray.")] = "local",
    address: Annotated[str, typer.Option(help="Ray cluster to use; by default Ray is started here.")] = "",
    gpus: Annotated[float, typer.Option(help="GPUs that Ray gives each cell; 0.5: two cells share one.")] = 0.0,
    memory: Annotated[float, typer.Option(help="GiB that Ray sets aside for each cell.")] = 0.0,
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
            min=1,
            help="Then run the settings that come out best again, on so many fresh seeds, or as many as it takes.",
        ),
    ] = None,
    cell_timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a cell is ended and counts as failed; by default never.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but what went wrong.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print every finding of a finished cell.")] = False,
    log: Annotated[Path | None, typer.Option(help="Append what happens to this file, with the time.")] = None,
    shard: Annotated[
        str, typer.Option(help="i/N: compute every N-th cell; other processes compute the others in the same --out.")
    ] = "",
) -> None:
    """Train, attack and report. The same command continues a run that was stopped; failed cells are tried again."""
    from fglaudit.execution.engine import default_jobs
    from fglaudit.execution.engines import make_engine
    from fglaudit.execution.run_folder import check_ours, run_folder
    from fglaudit.execution.shards import Shard
    from fglaudit.suite.overrides import load_suite, output_folder, pick_device
    from fglaudit.suite.plugin_files import PluginFile, Trust

    console = _console()
    console.quiet = quiet

    def announce(files: Sequence[PluginFile]) -> None:
        for file in files:
            console.print(
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

        print_plan(console, resolved, directory)
        interrupt()
        lines = []
        for line in opened(resolved, estimates=not quick):
            lines.append(printable(line))
            console.print(lines[-1], markup=False, highlight=False, soft_wrap=True)
        if any(line.startswith(FAILS) for line in lines):
            raise SystemExit(int(ExitCode.FAILED))
        return

    from fglaudit.execution.display import failures_table
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
            console,
            secret=secret,
            shard=part,
            log=log,
            verbose=verbose,
        )
    except KeyboardInterrupt:
        command = shlex.join(["fglaudit", *sys.argv[1:]])
        print(f"\nstopped; finished cells are kept in {directory}; continue with: {command}", file=sys.stderr)
        raise SystemExit(EXIT) from None
    print_answers(console, Run(resolved.name, tuple(records), planned=True))
    if confirm is not None:
        from fglaudit.confirming import confirm_chosen
        from fglaudit.reports.console import print_confirmed

        whole, fresh = confirm_chosen(resolved, directory, chosen_engine, chosen, console, seeds=confirm, secret=secret)
        records += fresh
        print_confirmed(console, whole)
    failed = failed_rows(records)
    if failed:
        console.print(failures_table(failed))
    console.print(_results(directory), markup=False, highlight=False, soft_wrap=True)
    _end(troubles(records, f"tracebacks: {directory / ERRORS}; the same command tries them again"))


@app.command()
def report(directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")]) -> None:
    """Write the tables, reports and figures of a run again, finished or not."""
    from fglaudit.execution.stored_run import failed_rows
    from fglaudit.reports.png import MISSING, draws
    from fglaudit.run import OUTPUTS, write_outputs

    interrupt()
    run = write_outputs(directory)
    for name in OUTPUTS:
        print(directory / name)
    for suffix in (".svg", ".png") if draws() else (".svg",):
        for path in sorted(directory.glob(f"figure-*{suffix}")):
            print(path)
    if not draws():
        print(f"note: {MISSING}", file=sys.stderr)
    if failed := {row.cell for row in failed_rows(run.cells)}:
        print(f"note: {len(failed)} cells failed or were not run; the report lists them", file=sys.stderr)
    # The report of an unfinished run is a report: that its cells failed was the run's to say.
    _end([trouble for trouble in troubles(run.cells) if trouble.code is not ExitCode.FAILED])


@app.command()
def attack(
    source: Annotated[Path, typer.Argument(metavar="RUN_OR_RECORDING", help="A run made with record: all.")],
    observer: Annotated[
        list[str], typer.Option(help="server, client:0, client:each or wire; join with +: server+client:0.")
    ],
    attack_name: Annotated[
        list[str], typer.Option("--attack", help="Attack by name, file.py:Class, or {name: ..., FIELD: ...}.")
    ],
    name: Annotated[str, typer.Option(help="Folder under RUN/attacks; by default made of observers and attacks.")] = "",
    topology: Annotated[bool, typer.Option("--topology", help="The observers know every edge.")] = False,
    degrees: Annotated[bool | None, typer.Option(help="They know all degrees, or not even their neighbours'.")] = None,
    initial_weights: Annotated[bool, typer.Option("--initial-weights", help="They know the first model.")] = False,
    auxiliary: Annotated[float, typer.Option(help="Share of all rows they know; one that was recorded.")] = 0.0,
    sensitive: Annotated[
        list[int] | None, typer.Option(help="A column that they lack in every second of these; may be repeated.")
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Attack a saved recording without training again; writes RUN/attacks/NAME, never over the run's own files."""
    import torch

    from fglaudit.execution.display import failures_table
    from fglaudit.execution.saved import attack_saved, find, stored_records
    from fglaudit.execution.stored_run import failed_rows
    from fglaudit.reports.console import print_answers
    from fglaudit.run import write_outputs
    from fglaudit.suite.overrides import named_attacks, named_observers, pick_device

    interrupt()
    found = find(source)
    observers = named_observers(
        observer,
        topology=topology,
        degrees=degrees,
        initial_weights=initial_weights,
        auxiliary=auxiliary,
        sensitive=tuple(sorted(sensitive or [])),
    )
    attacks = named_attacks(attack_name)
    console = _console()
    chosen = name or "-".join([*(o.name.replace(":", "-") for o in observers), *(type(a).name for a in attacks)])
    folder, records = attack_saved(
        found, observers, attacks, chosen, torch.device(pick_device(device)), lambda text: print(text, file=sys.stderr)
    )
    print_answers(console, write_outputs(folder))
    if failed := failed_rows(records):
        console.print(failures_table(failed))
    console.print(_results(folder), markup=False, highlight=False, soft_wrap=True)
    # Recordings keep messages, not verdicts: what the run found out about its guarantees holds here too.
    _end(troubles(records, audited=stored_records(found)))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Folder of a run.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Folder of another run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say what changed from run A to run B: better, worse or within noise, per observer and quantity."""
    import json

    from fglaudit.reports.compare import compare_folders, comparison_text

    interrupt()
    found = compare_folders(first, second)
    print(
        json.dumps(found.to_json(), indent=2)
        if as_json
        else "\n".join(map(printable, comparison_text(found).splitlines()))
    )


@app.command("list")
def list_names(
    kind: Annotated[str, typer.Argument(help="protocols, attacks, defenses, servers, datasets, partitions or suites.")],
) -> None:
    """List what a suite can name."""
    from fglaudit.catalog import CATALOG

    if kind not in CATALOG:
        raise unknown("kind of thing to list", kind, CATALOG)
    entries = CATALOG[kind].entries()
    width = max((len(name) for name in entries), default=0)
    for name, summary in entries.items():
        print(f"{name:<{width}}  {summary}".rstrip())


@app.command()
def show(name: Annotated[str, typer.Argument(help="A name that `fglaudit list` prints, or file.py:Class.")]) -> None:
    """Explain a name that `fglaudit list` prints: what it is, its fields and their defaults."""
    from fglaudit.catalog import explain

    print(explain(name))


app.command()(tool_commands.reproduce)


@app.command()
def doctor(
    full: Annotated[bool, typer.Option("--full", help="Import torch too, and ask it for devices (seconds).")] = False,
) -> None:
    """Check the installation: versions, optional packages, devices, data sets; says how to get what is missing."""
    from fglaudit.doctor import examine

    broken = False
    for check in examine(full):
        fix = f"  -> {check.fix}" if check.state != "ok" and check.fix else ""
        print(f"{check.state:<8} {check.what:<18} {check.detail}{fix}")
        broken |= check.state == "broken"
    if broken:
        raise SystemExit(int(ExitCode.FAILED))
