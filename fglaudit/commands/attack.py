"""``fglaudit attack``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fglaudit.commands.options import DeviceOption, given_path
from fglaudit.commands.output import console, end, results
from fglaudit.execution.exit_code import troubles
from fglaudit.interruption import interrupt

if TYPE_CHECKING:
    from rich.console import Console

    from fglaudit.execution.exit_code import Trouble
    from fglaudit.finding import CellRecord


def attack(
    source: Annotated[
        Path, typer.Argument(parser=given_path, metavar="RUN_OR_RECORDING", help="A run made with record: all.")
    ],
    observer: Annotated[
        list[str],
        typer.Option(help="server, client:0, client:each or wire, joined by +: server+client:0 (may be repeated)."),
    ],
    attack_name: Annotated[
        list[str],
        typer.Option("--attack", help="A name, file.py:Class, or {name: ..., FIELD: ...} (may be repeated)."),
    ],
    name: Annotated[str, typer.Option(help="Folder under RUN/attacks; by default made of observers and attacks.")] = "",
    topology: Annotated[bool, typer.Option("--topology", help="The observers know every edge.")] = False,
    degrees: Annotated[bool | None, typer.Option(help="They know all degrees, or not even their neighbours'.")] = None,
    initial_weights: Annotated[bool, typer.Option("--initial-weights", help="They know the first model.")] = False,
    auxiliary: Annotated[float, typer.Option(help="Share of all rows they know; one that was recorded.")] = 0.0,
    sensitive: Annotated[
        list[int] | None, typer.Option(help="A column that is hidden in every second auxiliary row; may be repeated.")
    ] = None,
    device: DeviceOption = "auto",
    trust_plugins: Annotated[
        bool, typer.Option("--trust-plugins", help="Run the Python files of a protocol or defense that the run names.")
    ] = False,
) -> None:
    """Attack a saved recording without training again; writes RUN/attacks/NAME, never over the run's own files."""
    import torch

    from fglaudit.execution.saved import attack_saved, find, stored_records
    from fglaudit.reports.formats.console import print_answers
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
    screen = console()
    chosen = name or "-".join([*(o.name.replace(":", "-") for o in observers), *(type(a).name for a in attacks)])
    # Recordings keep messages, not verdicts: what the run found out about its guarantees holds here too.
    made, unread = stored_records(found)
    folder, records = attack_saved(
        found,
        observers,
        attacks,
        chosen,
        torch.device(pick_device(device)),
        lambda text: print(text, file=sys.stderr),
        made=made,
        trust_plugins=trust_plugins,
    )
    print_answers(screen, write_outputs(folder))
    _conclude(screen, folder, records, [*troubles(records, audited=made), *unread])


def _conclude(screen: Console, folder: Path, records: Sequence[CellRecord], trouble: Sequence[Trouble]) -> None:
    """Print which rows failed and where the report is, and end with the exit code that ``trouble`` asks for."""
    from fglaudit.execution.display import say
    from fglaudit.execution.failures import failures_table
    from fglaudit.execution.folder.stored_run import failed_rows

    if failed := failed_rows(records):
        screen.print(failures_table(failed))
    say(screen, results(folder))
    end(trouble)
