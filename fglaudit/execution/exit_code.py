"""Exit codes of all commands, and which one a run has earned. Other people's scripts rely on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from fglaudit.errors import counted, printable
from fglaudit.finding import CellRecord, Finding, Status


class ExitCode(IntEnum):
    """What the exit status of a command says; one interrupted by a signal ends with 130 or 143 instead."""

    DONE = 0
    FAILED = 1
    """Some cells failed or were not run."""
    INPUT = 2
    """Something must be fixed before the command can do its work."""
    REFUTED = 3
    """A guarantee was contradicted by an audit."""
    GATE = 4
    """A threshold of a policy is broken, or what it asks for is not shown."""


GRAVEST = (ExitCode.INPUT, ExitCode.REFUTED, ExitCode.GATE, ExitCode.FAILED, ExitCode.DONE)
"""Where several apply, the first of them is the exit status."""


@dataclass(frozen=True)
class Trouble:
    """Why a command does not end with 0: a line for stderr."""

    code: ExitCode
    text: str


def combined(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the exit status where all of ``codes`` apply."""
    found = {ExitCode.DONE, *codes}
    return next(code for code in GRAVEST if code in found)


def refuted(records: Sequence[CellRecord]) -> list[str]:
    """Return one line per refuted guarantee: protocol, defense and why; equal ones once."""
    lines: dict[str, None] = {}
    for record in records:
        if (why := record.refuted) is not None:
            name = _setting(record.findings[0])
            lines[f"the guarantee of {name} is refuted{f': {why}' if why else ''}"] = None
    return list(lines)


def _setting(row: Finding) -> str:
    defense = f"{row.defense}({row.defense_args})" if row.defense_args else row.defense
    return f"{defense} on {row.protocol}"


def none_applies(reasons: Sequence[str]) -> str:
    """Return what is wrong with a suite of which no cell can be computed, as ``reasons`` say, one for each cell."""
    return (
        f"in one cell of a suite at least the defense must serve the protocol; of {counted(len(reasons), 'cell')} here"
        f" it does in none: {'; '.join(dict.fromkeys(reasons))}; change defenses, protocols or server"
    )


def nothing_applied(records: Sequence[CellRecord]) -> list[Trouble]:
    """Return what is wrong where none of ``records``, all of a suite, was computed because nothing in it applies."""
    blank = [record for record in records if record.findings and all(map(_blank, record.findings))]
    if not blank or len(blank) < len(records):
        return []
    return [Trouble(ExitCode.INPUT, printable(none_applies([record.findings[0].reason for record in blank])))]


def _blank(row: Finding) -> bool:
    return row.status is Status.NOT_APPLICABLE and row.accuracy is None and row.bytes_up is None


def troubles(records: Sequence[CellRecord], again: str = "", *, audited: Sequence[CellRecord] = ()) -> list[Trouble]:
    """Return what is wrong with a run, gravest first.

    Args:
        again: how failed cells are tried again, in words.
        audited: records of the same cells, whose verdicts hold for ``records`` too.
    """
    found = [Trouble(ExitCode.REFUTED, printable(line)) for line in refuted([*audited, *records])]
    failed = {row.cell for record in records for row in record.findings if row.status is Status.FAILED}
    if failed:
        advice = f"; {again}" if again else ""
        of_all = f"{len(failed)} of {counted(len(records), 'cell')} {'has' if len(failed) == 1 else 'have'} failed rows"
        found.append(Trouble(ExitCode.FAILED, f"{of_all}{advice}"))
    return found
