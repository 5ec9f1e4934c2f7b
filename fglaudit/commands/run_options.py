"""Options of ``fglaudit run``, in the order in which its help lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fglaudit.commands.options import given_path

MACHINES = "Processes and machines"


def _suites(incomplete: str) -> list[str]:
    """Return the built-in suites that begin so; a shell adds files where there is none."""
    from fglaudit.suite.embedded import embedded

    return [name for name in embedded() if name.startswith(incomplete)]


SuiteArgument = Annotated[
    str, typer.Argument(autocompletion=_suites, help="Built-in suite (fglaudit list suites) or a YAML file.")
]
OutOption = Annotated[
    Path | None, typer.Option(parser=given_path, metavar="PATH", help="Folder of the run; by default runs/NAME.")
]
DatasetOption = Annotated[
    list[str] | None, typer.Option(help="Replace the suite's data sets: a name or an .npz (may be repeated).")
]
SeedsOption = Annotated[
    str | None, typer.Option(help="Which seeds, in place of the suite's: 0,1,2 or 0-9. 5 is seed number 5 alone.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=MACHINES, help="Cells computed at the same time; by default one per core, one on a GPU."
    ),
]
EngineOption = Annotated[str, typer.Option(rich_help_panel=MACHINES, help="local (processes here) or ray.")]
AddressOption = Annotated[
    str, typer.Option(rich_help_panel=MACHINES, help="Ray cluster to use; by default Ray is started here.")
]
GpusOption = Annotated[
    float, typer.Option(rich_help_panel=MACHINES, help="GPUs that Ray gives each cell; 0.5: two cells share one.")
]
MemoryOption = Annotated[float, typer.Option(rich_help_panel=MACHINES, help="GiB that Ray sets aside for each cell.")]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check the suite, open data and partitions, estimate seconds, memory and disk; run no plugin file.",
    ),
]
TrustOption = Annotated[
    bool, typer.Option("--trust-plugins", help="Run the suite's plugin files that lie outside of its folder.")
]
SecretOption = Annotated[
    bool, typer.Option("--secret", help="Draw the noise with a key of this run that nobody is told.")
]
QuickOption = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="No replays of defenses: a guarantee is then claimed, never verified; cells and attacks stay the same."
        " With --dry-run: no estimates.",
    ),
]
ConfirmOption = Annotated[
    int | None,
    typer.Option(
        help="Then run the settings that come out best again on this many fresh seeds, or on more if that is too few."
    ),
]
CellTimeoutOption = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=MACHINES, help="Seconds after which a cell is ended and counts as failed; by default never."
    ),
]
QuietOption = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but what went wrong.")]
VerboseOption = Annotated[bool, typer.Option("-v", "--verbose", help="Print every finding of a finished cell.")]
LogOption = Annotated[
    Path | None,
    typer.Option(parser=given_path, metavar="PATH", help="Append what happens to this file, with the time."),
]
ShardOption = Annotated[
    str,
    typer.Option(
        rich_help_panel=MACHINES,
        help="i/N: compute every N-th cell; other processes compute the others in the same --out.",
    ),
]
