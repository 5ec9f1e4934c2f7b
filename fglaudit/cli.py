"""The command line: the commands of :mod:`fglaudit.commands`, in the order in which they are needed.

They import heavy modules themselves, so that ``--help``, ``--version`` and ``list`` are quick. Exit codes are those of
:mod:`fglaudit.execution.exit_code`; 130 where a signal, or who read its output and stopped, interrupted the command.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from fglaudit import __version__
from fglaudit.commands.attack import attack
from fglaudit.commands.audit_mechanism import audit_mechanism
from fglaudit.commands.check import check
from fglaudit.commands.compare import compare
from fglaudit.commands.data import data_app
from fglaudit.commands.doctor import doctor
from fglaudit.commands.gate import gate
from fglaudit.commands.import_graph import import_graph
from fglaudit.commands.names import list_names, show
from fglaudit.commands.new import new
from fglaudit.commands.report import report
from fglaudit.commands.reproduce import reproduce
from fglaudit.commands.run import run
from fglaudit.errors import FglauditError, shown
from fglaudit.execution.exit_code import ExitCode
from fglaudit.files import plain_words
from fglaudit.files.own import reason
from fglaudit.interruption import EXIT, end_at_once

PANELS: dict[str, dict[str, Callable[..., Any]]] = {
    "Audit": {"run": run, "report": report, "compare": compare, "attack": attack, "gate": gate},
    "Your own graph, defense or mechanism": {
        "import": import_graph,
        "new": new,
        "check": check,
        "audit-mechanism": audit_mechanism,
    },
    "The papers": {"reproduce": reproduce},
    "Look up": {"list": list_names, "show": show, "doctor": doctor},
}
"""Commands by what somebody is about to do."""

app = typer.Typer(
    name="fglaudit",
    help=(
        "Audit the privacy of federated graph learning: train, record every message, attack exactly those messages,"
        " report.\n\nStart with: fglaudit run quickstart"
    ),
    epilog="Exit codes: 0 done, 1 cells failed, 2 input to be fixed, 3 a guarantee refuted, 4 a gate broken.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
for panel, commands in PANELS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)
app.add_typer(data_app, name="data", rich_help_panel="Look up")


USAGE: type[Exception] = typer.BadParameter.__mro__[1]
"""What the parser raises for a command line that it cannot read. Versions of typer keep it in different modules."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; every error a user can fix is one message on stderr and exit code 2."""
    end_at_once()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path that the terminal's encoding lacks must not end a command
        sys.stdout.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = _code(arguments, given)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        code = _unwritten(error) if error.filename is None else _unusable(error, given)
    raise SystemExit(code)


def _code(arguments: Sequence[str] | None, given: Sequence[str]) -> int | str | None:
    """Run the command that ``arguments`` name, and return its exit code.

    Raises:
        OSError: what it printed could not be written.
    """
    try:
        code = int(app(args=arguments, prog_name="fglaudit", standalone_mode=False) or ExitCode.DONE)
        if code == EXIT:  # what newer versions of typer make of an interruption
            _say_stopped(given)
        return code
    except typer.Abort:  # older ones
        _say_stopped(given)
        return EXIT
    except FglauditError as error:
        _say(error, given)
    except USAGE as error:
        if said := misuse(error, given):
            _say(FglauditError(said), given)
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # typer and rich make it 1, which is the code of failed cells
            raise done.__context__ from done
        return done.code
    return int(ExitCode.INPUT)


def _unwritten(error: OSError) -> int:
    """Return the exit code of a command whose output nobody takes (``| head -1``) or no disk holds."""
    with contextlib.suppress(OSError):  # what is left in the buffer would be tried again, and complained of, at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return EXIT
    print(
        f"error: what a command prints must be written; standard output gave {error.strerror!r}; free space there, or"
        " send it elsewhere",
        file=sys.stderr,
    )
    return int(ExitCode.INPUT)


def _unusable(error: OSError, given: Sequence[str]) -> int:
    """Say which file or folder the system refused, and return the exit code."""
    path = shown(os.fsdecode(error.filename) if isinstance(error.filename, bytes | str) else error.filename)
    _say(FglauditError(f"files and folders must be usable; {path}: {reason(error)}; mend it, or name another"), given)
    return int(ExitCode.INPUT)


def _say_stopped(given: Sequence[str]) -> None:
    """Say that the command was interrupted; one that has said so itself ends by ``SystemExit``."""
    again = shlex.join(["fglaudit", *given])
    print(
        f"\nstopped; to start again, or go on from what was kept (a run keeps finished cells): {again}", file=sys.stderr
    )


def _say(error: FglauditError, arguments: Sequence[str]) -> None:
    """Print ``error`` on stderr, and where JSON was asked for as JSON on stdout too: a script reads that alone."""
    print(f"error: {error}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": str(error), "exit_code": int(ExitCode.INPUT)}, indent=2))


def misuse(error: Any, arguments: Sequence[str]) -> str:
    """Return the parser's complaint with what was given and where to look; nothing where it has printed the help
    already, as for ``fglaudit`` alone."""
    text = error.format_message().rstrip(".")
    if hasattr(error.__cause__, "errors"):  # pydantic's, by which typer reads numbers
        text = text.replace(error.message, plain_words.rule(error.__cause__.errors()))
    command = error.ctx.command_path if error.ctx else "fglaudit"
    return text and f"{text[0].lower()}{text[1:]}; got {shlex.join(arguments)}; {command} --help says what there is"


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
