"""``fglaudit report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fglaudit.commands.options import given_path
from fglaudit.commands.output import end
from fglaudit.execution.exit_code import ExitCode, troubles
from fglaudit.interruption import interrupt

INTO = "a report is written into the folder of its run: make it writable, or copy the run elsewhere"


def report(
    directory: Annotated[Path, typer.Argument(parser=given_path, metavar="DIR", help="Folder of a run.")],
) -> None:
    """Write the tables, reports and figures of a run again, finished or not."""
    from fglaudit.execution.folder.run_folder import READ, run_folder
    from fglaudit.execution.folder.stored_run import failed_rows
    from fglaudit.files.own import check_writable
    from fglaudit.reports.formats.png import missing
    from fglaudit.reports.numbers import plural
    from fglaudit.run import OUTPUTS, write_outputs

    interrupt()
    if run_folder(directory, READ).is_dir():  # what is no run is refused in its own words
        check_writable(directory, INTO)
    run = write_outputs(directory)
    for name in OUTPUTS:
        print(directory / name)
    lacks = missing()
    for suffix in (".svg",) if lacks else (".svg", ".png"):
        for path in sorted(directory.glob(f"figure-*{suffix}")):
            print(path)
    if lacks:
        print(f"note: {lacks}", file=sys.stderr)
    if failed := {row.cell for row in failed_rows(run.cells)}:
        print(f"note: {plural(len(failed), 'cell')} failed or not run; the report lists them", file=sys.stderr)
    # The report of an unfinished run is a report: that its cells failed was the run's to say.
    end([trouble for trouble in troubles(run.cells) if trouble.code is not ExitCode.FAILED])
