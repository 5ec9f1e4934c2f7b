"""Commands beside running and reporting: gate, import, new, check, audit-mechanism, reproduce.

:mod:`fglaudit.cli` adds them.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from fglaudit.data_commands import RootOption
from fglaudit.errors import FglauditError, printable, shown, unknown
from fglaudit.interruption import interrupt

DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def gate(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A YAML file; docs/gate.md has its keys.")],
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML into this file.")] = None,
    github: Annotated[bool, typer.Option("--github", help="Also print annotations for GitHub Actions.")] = False,
) -> None:
    """Compare a run with a policy. Exit code 4 if it is broken or not shown, 3 if a guarantee is refuted, 2 if the
    policy asks what no run of this suite can show."""
    from fglaudit.gate import output
    from fglaudit.gate.checks import check_run
    from fglaudit.gate.policy import read_policy
    from fglaudit.own_files import write_atomic

    outcome = check_run(directory, read_policy(policy))
    print(output.as_json(outcome) if json else output.text(outcome))
    if github:
        print(output.github(outcome))
    if junit is not None:
        write_atomic(junit, output.junit(outcome), option="--junit")
    if outcome.code:
        raise SystemExit(int(outcome.code))


def import_graph(
    sources: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="nodes.csv edges.csv, or one .graphml, .gml, .json, .pt.")
    ],
    out: Annotated[str, typer.Option("--out", "-o", help="The .npz to write.")],
    label: Annotated[
        str | None, typer.Option(help="Attribute with the class; by default label, y, class or target.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--id", help="Column that names nodes; by default id, node, node_id or name, else the first one."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Attribute with train, val, test; by default split.")] = None,
    client: Annotated[str | None, typer.Option(help="Attribute with who holds the node; by default client.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="An attribute that is no feature (may be repeated).")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over the .npz.")] = False,
) -> None:
    """Make a graph of your own into an .npz that suites name; says what was decided on the way."""
    from fglaudit.importing.convert import import_graph as convert
    from fglaudit.importing.node_table import Choice

    for line in convert(sources, out, Choice(label, split, client, tuple(drop or ())), name, replace=replace):
        print(printable(line))


def new(
    kind: Annotated[str, typer.Argument(help="defense, attack or protocol.")],
    name: Annotated[str, typer.Argument(help="Of the plugin, e.g. my-defense.")],
    folder: Annotated[Path, typer.Option(help="Where to write.")] = Path(),
) -> None:
    """Write a plugin that runs as it is, and its test, to start from."""
    from fglaudit.scaffold import scaffold

    written = scaffold(kind, name, folder)
    for path in written:
        print(path)
    cls = "".join(part.capitalize() for part in name.split("-"))
    plugin, test = shlex.quote(f"{written[0]}:{cls}"), shlex.quote(str(written[1]))
    print(f"next: fglaudit check {plugin} --quick   and   python -m pytest {test}")


def check(
    name: Annotated[str, typer.Argument(metavar="FILE:CLASS", help="file.py:Class, or the name of a plugin.")],
    fields: Annotated[str, typer.Option(help="Its fields as YAML, e.g. '{std: 2.0}'.")] = "{}",
    protocol: Annotated[list[str] | None, typer.Option(help="Check it on this protocol (may be repeated).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller graph, one seed, two observers.")] = False,
) -> None:
    """Check a plugin: does it keep the rules, and what does an audit say of it? Exit code 3 if its guarantee is
    refuted, 1 if a fault was found or features are still read."""
    from fglaudit.plugin_check import check as run_check
    from fglaudit.plugin_check import load_plugin
    from fglaudit.suite.yaml_text import read_yaml

    values = read_yaml(fields)
    if not isinstance(values, dict):
        raise FglauditError(f"--fields takes a mapping; got {shown(values)}; write e.g. --fields '{{std: 2.0}}'")
    kind, plugin = load_plugin(name, values)
    print(f"{kind} {type(plugin).name}")
    code = 0
    for line in run_check(kind, plugin, protocols=protocol or (), quick=quick):
        print(f"  {printable(line.text)}", flush=True)
        code = int(line.code)
    if code:
        raise SystemExit(code)


def audit_mechanism(
    name: Annotated[str, typer.Argument(metavar="FILE:NAME", help="file.py:name or module:name, function or class.")],
    epsilon: Annotated[float, typer.Option(help="What its author promises.")],
    delta: Annotated[float, typer.Option(help="Of that promise; 0: pure.")] = 0.0,
    gaussian: Annotated[
        bool, typer.Option("--gaussian", help="It adds Gaussian noise: test the whole curve, with far fewer replays.")
    ] = False,
    columns: Annotated[int, typer.Option(help="Numbers of a row, or how many classes there are.")] = 16,
    rows: Annotated[int, typer.Option(help="Rows that it is called with, of which one changes; 1: a row alone.")] = 1,
    values: Annotated[str, typer.Option(help="real, binary or class.")] = "real",
    norm: Annotated[str, typer.Option(help="By which real rows are bounded: l1, l2 or linf.")] = "l2",
    bound: Annotated[float, typer.Option(help="Largest norm of a real row.")] = 1.0,
    any_length: Annotated[bool, typer.Option("--any-length", help="It clips rows itself: try longer ones.")] = False,
    relation: Annotated[
        str, typer.Option(help="What happens to the row: 'replaced', 'zeroed out' or 'added or removed'.")
    ] = "replaced",
    releases: Annotated[int, typer.Option(help="Calls that the promise covers together.")] = 1,
    replays: Annotated[int | None, typer.Option(help="Per world and input; by default what epsilon asks for.")] = None,
    seed: Annotated[int, typer.Option(help="Of inputs and replays.")] = 0,
    numpy: Annotated[
        bool, typer.Option("--numpy", help="It takes arrays and a numpy.random.Generator, not tensors and torch's.")
    ] = False,
) -> None:
    """Put the epsilon of any noise mechanism or filter to the test, with nothing of fglaudit around it. Exit code 3 if
    it is refuted, 1 if it could not be tested."""
    from fglaudit.empirical.mechanism_audit import Promise
    from fglaudit.empirical.mechanism_audit import audit_mechanism as audited
    from fglaudit.empirical.mechanism_calls import Mechanism, named
    from fglaudit.empirical.mechanism_inputs import Inputs, Norm, Values
    from fglaudit.execution.exit_code import ExitCode
    from fglaudit.guarantees import Outcome
    from fglaudit.privacy.accounting import Relation

    kinds = {"values": (Values, values), "norm": (Norm, norm), "relation": (Relation, relation)}
    for option, (kind, given) in kinds.items():
        if given not in list(kind):
            raise unknown(f"--{option}", given, [each.value for each in kind])
    inputs = Inputs(columns, rows, Values(values), Norm(norm), bound, any_length, Relation(relation))
    promise = Promise(epsilon, delta, gaussian)
    found = audited(
        Mechanism(named(name), numpy),
        promise,
        inputs,
        releases=releases,
        replays=replays,
        seed=seed,
        progress=lambda text: print(printable(text), file=sys.stderr),
    )
    print(*map(printable, found.lines()), sep="\n")
    code = {Outcome.REFUTED: ExitCode.REFUTED, Outcome.UNTESTED: ExitCode.FAILED}.get(found.outcome)
    if code:
        raise SystemExit(int(code))


def reproduce(
    table: Annotated[str, typer.Argument(help="A table such as fedgcn-table2; without one all are listed.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="The smallest data sets, one seed each.")] = False,
    only: Annotated[str, typer.Option(help="Rows whose label contains this text.")] = "",
    seeds: Annotated[int | None, typer.Option(min=1, help="At most so many seeds per row.")] = None,
    device: DeviceOption = "auto",
    root: RootOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the measurements, runs/reproduce/TABLE; with --status its parent.")
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Measure nothing: which printed figures were measured, and which miss.")
    ] = False,
) -> None:
    """Measure a table of one of the papers, ours beside theirs; the same command goes on where it was stopped."""
    if status:
        from fglaudit.reproduce.status_output import status_of

        changed = (("--quick", quick), ("--only", only), ("--seeds", seeds), ("--device", device != "auto"))
        given = [name for name, value in changed if value]
        if given:
            raise FglauditError(f"--status measures nothing and shows every row; got {given[0]} too; leave it out")
        print(status_of(table, out or Path("runs") / "reproduce"), end="")
        return
    import torch

    from fglaudit.reproduce.output import markdown, write
    from fglaudit.reproduce.published import TITLES
    from fglaudit.reproduce.run import reproduce as measured
    from fglaudit.suite.overrides import pick_device

    if not table:
        for name, title in TITLES.items():
            print(f"{name:<19} {title}")
        return
    interrupt()
    folder = out or Path("runs") / "reproduce" / table
    rows = measured(
        table, folder, quick=quick, only=only, root=str(root) if root else None, seeds=seeds,
        device=torch.device(pick_device(device)),
        announce=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    print(markdown(table, rows), end="")
    for path in write(table, rows, folder):
        print(path, file=sys.stderr)
