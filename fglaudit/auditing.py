"""One call from a graph in memory to a report: :func:`audit`."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fglaudit import registry
from fglaudit.conformance.of_runs import checked
from fglaudit.datasets.from_memory import clients_of, content_digest, graph_from
from fglaudit.datasets.spec import DatasetSpec, Split
from fglaudit.doing import Announcer, heard_by
from fglaudit.errors import FglauditError, printable, shown
from fglaudit.execution.run_cell import attacked
from fglaudit.execution.saved import store_plan, store_record
from fglaudit.files import plain_words
from fglaudit.finding import COLUMNS, CellRecord, Finding, Status
from fglaudit.graph import Graph
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.nn.torch_settings import check_torch_settings
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.recording import NotApplicableError, record
from fglaudit.reports.labels import Labels
from fglaudit.reports.numbers import THIN, plural
from fglaudit.reports.records import Run
from fglaudit.reports.summary import summarize
from fglaudit.reports.verdict import make_verdict
from fglaudit.reports.wording.observers import observer_label
from fglaudit.run import write_outputs
from fglaudit.suite.cell import Cell
from fglaudit.suite.checks import check_attacks, check_observers, check_seeds
from fglaudit.suite.dataset_defaults import left_open, on_dataset
from fglaudit.suite.entries import dataset_spec
from fglaudit.suite.overrides import dataset_entry, pick_device
from fglaudit.suite.stacks import with_parts
from fglaudit.suite.suite import fitting

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

Named = str | Mapping[str, Any]
"""A plugin by name, or as a mapping with a name and fields, as in a suite."""


@dataclass(frozen=True, repr=False)
class Report:
    """What :func:`audit` found; printed, or shown in a notebook, who learns what and what to know about the run.

    Attributes:
        records: one per seed.
        name: of the data set.
    """

    records: tuple[CellRecord, ...]
    name: str

    @property
    def findings(self) -> pd.DataFrame:
        """The rows of ``findings.csv``: what was measured, or failed."""
        return _frame([f for f in self._rows() if f.status is not Status.NOT_APPLICABLE])

    @property
    def coverage(self) -> pd.DataFrame:
        """The rows of ``coverage.csv``: pairs of observer and attack that do not apply, with the reason."""
        return _frame([f for f in self._rows() if f.status is Status.NOT_APPLICABLE])

    def save(self, folder: str | Path) -> Path:
        """Write records, findings and the report into ``folder``, which must not exist; returns the report's page."""
        target = Path(folder)
        if target.exists():
            raise FglauditError(f"a report is saved into a folder of its own; {target} exists; name another one")
        for one in self.records:
            store_record(target, one)
        store_plan(target, self.name, self.records)
        write_outputs(target)
        return target / "report.html"

    def _rows(self) -> list[Finding]:
        return [finding for one in self.records for finding in one.findings]

    def __repr__(self) -> str:
        return "\n".join(printable(line.replace(THIN, " ")) for line in self._lines())

    def _repr_html_(self) -> str:
        shown = ["observer", "attack", "status", "quantity", "value", "control", "advantage_low", "advantage_high"]
        table: str = self.findings[shown].to_html(index=False, float_format="{:.3f}".format, na_rep="")
        return "".join(f"<p>{html.escape(line)}</p>" for line in self._lines()) + table

    def _lines(self) -> list[str]:
        """Return what was audited, the answer for each observer, alarms and notes."""
        run = Run(self.name, self.records)
        settings = summarize(run)
        verdict = make_verdict(run, settings, labels := Labels.of(settings))
        accuracies = [record.findings[0].accuracy for record in self.records if record.findings]
        told = ", ".join(f"{value:.3f}" for value in accuracies if value is not None)
        return [
            f"{'; '.join(map(labels.setting, settings))} on {self.name}{f', accuracy {told}' if told else ''}",
            *(f"{observer_label(one.observer)}, {one.word.value}: {one.headline}" for one in verdict.observers),
            *(f"alarm: {alarm}" for alarm in verdict.alarms),
            *(f"note: {note}" for note in dict.fromkeys(note for record in self.records for note in record.notes)),
        ]


class AuditInterrupted(KeyboardInterrupt):
    """An audit of several seeds that was stopped, with ``report``, which has the seeds that were finished."""

    def __init__(self, report: Report, planned: int) -> None:
        super().__init__(
            f"{len(report.records)} of {plural(planned, 'seed')} finished; in a notebook sys.last_value.report has them"
        )
        self.report = report


def audit(
    graph: Any,
    *,
    protocol: Named | FederatedProtocol = "fedgcn",
    defense: Named | Defense = "none",
    observers: Sequence[str | ObserverSpec] = ("server", "client:each"),
    attacks: str | Sequence[Named | Attack] = "all",
    clients: int | Sequence[int] | npt.NDArray[Any] | torch.Tensor = 10,
    partition: PartitionSpec | None = None,
    seeds: Sequence[int] = (0,),
    split: Split | None = None,
    device: str = "auto",
    name: str = "graph",
    empirical: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Train ``protocol`` under ``defense`` on a graph, attack what each observer sees, and score it.

    >>> report = fglaudit.audit("csbm-cora", protocol={"name": "fedgcn", "rounds": 30}, observers=["client:0"])
    >>> report.findings[["observer", "attack", "exact_rate"]]
    >>> report.save("runs/mine")

    Args:
        graph: the name of a data set, the path of an ``.npz`` file, or whatever
            :func:`fglaudit.datasets.from_memory.graph_from` takes: a ``torch_geometric.data.Data``, a networkx graph,
            a mapping of arrays.
        protocol, defense: a name, a mapping with a name and fields as in a suite, or an instance of your own class;
            several defenses in a row as ``{"stack": [...]}``.
        observers: "server", "client:0", "client:each", "wire", joined by "+"; or with side knowledge as
            :class:`fglaudit.observers.ObserverSpec`.
        attacks: "all" that read what the protocol sends, or a list of names, mappings or instances.
        clients: over how many the nodes are split, at random and evenly, unless ``partition`` says it; or the number
            of the client that holds each node [N], also as an array or tensor.
        partition: how else nodes are split, see :class:`fglaudit.partition.PartitionSpec`.
        seeds: a list, one training each.
        split: "public" masks of the graph, "random" or "random-shared"; by default the masks where there are any.
        device: "auto", "cpu" or "cuda".
        name: of the graph, for reports; that of a named data set stays.
        empirical: whether replays audit what the defense promises; without them a guarantee is claimed at most.
        progress: told what begins, and every few seconds which round is trained, e.g. ``print``.

    Raises:
        FglauditError: a name, a value or the graph breaks a rule, or the defense does not serve the protocol.
        AuditInterrupted: Ctrl-C, or the notebook's stop button, once a seed is finished; its ``report`` has those.
    """
    check_torch_settings()
    _check_lists(seeds, observers, attacks)
    _check_types(clients, partition, split, device=device, name=name, empirical=empirical)
    if progress is not None and not callable(progress):
        raise FglauditError(f"progress is called with a text; got {shown(progress)}; give e.g. progress=print")
    spec, whole, notes = _dataset(graph, name, split)
    spec, whole, chosen = _split_over(spec, whole, clients, partition)
    watching = _observers(observers, chosen)
    built: FederatedProtocol = registry.named("protocol", protocol, "protocol")
    if not isinstance(protocol, FederatedProtocol) and left_open(built, protocol):
        built = on_dataset(built, spec)
    first = Cell(
        dataset=spec,
        partition=chosen,
        protocol=built,
        defense=_defense(defense, "defense"),
        seed=0,
        observers=watching,
        attacks=_attacks_on(built, attacks),
        empirical=empirical,
    )
    where = torch.device(pick_device(device))
    cells = [dataclasses.replace(first, seed=int(seed)) for seed in seeds]
    done: list[CellRecord] = []
    try:
        for number, cell in enumerate(cells):
            told = Announcer(progress, f"seed {cell.seed}, {number + 1} of {len(cells)}: ")
            with heard_by(told):
                done.append(_audited(cell, whole, notes, spec.name, where, told))
    except KeyboardInterrupt as error:
        raise (AuditInterrupted(Report(tuple(done), whole.name), len(cells)) if done else error) from None
    return Report(tuple(done), whole.name)


def _observers(observers: Sequence[str | ObserverSpec], partition: PartitionSpec) -> tuple[ObserverSpec, ...]:
    """Return who watches, each of whom there is in ``partition``."""
    specs = tuple(o if isinstance(o, ObserverSpec) else ObserverSpec(tuple(o.split("+"))) for o in observers)
    check_observers(specs, [partition])
    return specs


def _check_lists(seeds: Any, observers: Any, attacks: Any) -> None:
    """Refuse what is no list, and one value where a list is meant: a text would be read letter by letter.

    Raises:
        FglauditError: a single seed, observer or attack, none of them, or seeds that are no such or repeated.
    """
    if not _listed(seeds) or not all(isinstance(s, Integral) and not isinstance(s, bool) for s in seeds):
        raise FglauditError(
            f"an audit needs a list of seeds, one at least, all whole numbers; got {shown(seeds)}; use e.g."
            " seeds=[0, 1]"
        )
    check_seeds(seeds)
    if isinstance(observers, str):
        raise FglauditError(f"observers are a list; got {observers!r}; write observers=[{observers!r}]")
    if not _listed(observers) or not all(isinstance(one, str | ObserverSpec) for one in observers):
        raise FglauditError(
            "observers are a list, one at least, of texts or fglaudit.observers.ObserverSpec; got"
            f" {shown(observers)}; write e.g. observers=['server']"
        )
    if isinstance(attacks, str) and attacks != "all":
        raise FglauditError(f'attacks are "all" or a list; got {attacks!r}; write e.g. attacks=[{attacks!r}]')
    if attacks != "all" and not _listed(attacks):
        raise FglauditError(
            f"attacks are \"all\" or a list, one at least; got {shown(attacks)}; write e.g. attacks=['row-space']"
        )


def _listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0


def _check_types(clients: Any, partition: Any, split: Any, **plain: Any) -> None:
    """Raise :class:`FglauditError` for single values of another type: of each what is wanted, and what was given."""
    if partition is not None and not isinstance(partition, PartitionSpec):
        raise FglauditError(
            f"partition must be a fglaudit.partition.PartitionSpec; got {shown(partition)}; write e.g."
            " PartitionSpec('dirichlet', 10, 10000.0), or give clients=10 alone"
        )
    wanted = {"empirical": bool, "clients": int}
    given = {
        **plain,
        **({} if split is None else {"split": split}),
        **({"clients": clients} if isinstance(clients, bool) else {}),
    }
    for key, value in given.items():
        kind = wanted.get(key, str)
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            words = plain_words.kind(kind)
            fix = plain_words.fix(words, value) or "change it"
            raise FglauditError(f"{key} must be {words}; got {shown(value)}; {fix}")


def _defense(entry: Named | Defense, where: str) -> Defense:
    """Return the defense that ``entry`` names, or the stack of those that it lists."""
    named = with_parts(entry, where, _defense) if isinstance(entry, Mapping) else entry
    found: Defense = registry.named("defense", named, where)
    return found


def _attacks_on(protocol: FederatedProtocol, attacks: str | Sequence[Named | Attack]) -> tuple[Attack, ...]:
    """Return the attacks by name, or all that read what ``protocol`` sends."""
    every = attacks == "all"
    listed = [registry.named("attack", a, "attacks") for a in (registry.names("attack") if every else attacks)]
    check_attacks(listed)
    return fitting(protocol, listed) if every else tuple(listed)


def _audited(
    cell: Cell, whole: Graph, notes: tuple[str, ...], suite: str, device: torch.device, told: Announcer
) -> CellRecord:
    try:
        recording, truth = record(cell, device=device, whole=whole, notes=notes, progress=told.rounds)
    except NotApplicableError as error:
        defense, protocol = type(cell.defense).name, type(cell.protocol).name
        raise FglauditError(f"{defense} does not serve {protocol}: {error}; choose another of the two") from error
    recording = checked(recording, cell.protocol, truth.graph)
    return attacked(cell, recording, truth, suite=suite, device=device, whole=whole)


def _dataset(graph: Any, name: str, split: Split | None) -> tuple[DatasetSpec, Graph, tuple[str, ...]]:
    """Return what a cell says of the graph, the graph, and notes on edges that had to be changed; a graph in memory is
    named by the digest of its content."""
    if isinstance(graph, str | Path):
        given = {} if split is None else {"split": split}
        spec = dataset_spec({**dataset_entry(str(graph)), **given})
        return spec, *spec.load_with_notes()
    whole, notes = graph_from(graph, name)
    chosen = split or ("random" if whole.train is None else "public")
    return DatasetSpec("npz", path=f"{whole.name}.npz", sha256=content_digest(whole), split=chosen), whole, notes


def _split_over(
    spec: DatasetSpec, whole: Graph, clients: Any, partition: PartitionSpec | None
) -> tuple[DatasetSpec, Graph, PartitionSpec]:
    """Return data and partition; where ``clients`` says who holds which node, that is a part of the data."""
    if isinstance(clients, int):
        return spec, whole, partition or PartitionSpec("dirichlet", clients, 10000.0)
    if partition is not None:
        raise FglauditError("clients per node are a partition; got a partition beside them; give one of the two")
    held = clients_of(clients, whole.num_nodes)
    whole = dataclasses.replace(whole, clients=held)
    spec = dataclasses.replace(spec, name="npz", path=f"{whole.name}.npz", sha256=content_digest(whole))
    return spec, whole, PartitionSpec("given", int(held.max().item()) + 1)


def _frame(rows: Sequence[Finding]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS))
