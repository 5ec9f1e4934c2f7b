"""What ``--dry-run`` opens: data sets and partitions, so that what is wrong with them is said before hours of training.

Then the first rounds of every setting are trained, and what all of them will take is estimated
(:mod:`fglaudit.execution.forecast`). No plugin file is imported, so a protocol of one is neither asked whether the
split suits it nor trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.size import expected_size, in_words, taken
from fglaudit.errors import FglauditError, counted, duration
from fglaudit.execution.display import cell_label
from fglaudit.execution.engines.engine import available_cores
from fglaudit.execution.forecast.forecast import Forecast, without
from fglaudit.execution.forecast.settings import WILL_FAIL, forecasts
from fglaudit.execution.message_budget import told
from fglaudit.execution.preflight import LARGE, DataCheck, check_data
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.recording import unserved
from fglaudit.registry import is_stand_in
from fglaudit.rng import derive
from fglaudit.suite.cell import Cell, arguments
from fglaudit.suite.suite import Suite


class Line(NamedTuple):
    """A line of a dry run, and whether it is about cells that cannot be computed."""

    text: str
    fails: bool = False


def _fails(where: str) -> Line:
    return Line(f"will fail: {where}", fails=True)


HEADING = (
    "estimates per cell: seconds of one core (training: from its first rounds, which were trained; attacks and audits:"
    " from what they took elsewhere, an order of magnitude), memory at the peak of training, to which attacks add,"
    " messages on disk"
)


@dataclass
class Opened:
    """What was found in the data of a suite.

    Attributes:
        lines: to be printed.
        unserved: why a cell will not be computed, by its place in ``suite.cells()``: its rows will be not-applicable.
        skipped: data sets that were not loaded.
    """

    lines: list[Line] = field(default_factory=list)
    unserved: dict[int, str] = field(default_factory=dict)
    skipped: set[DatasetSpec] = field(default_factory=set)


def opened(suite: Suite) -> Opened:
    """Load every data set, split it by every partition with the first seed, and ask which protocols can use the split,
    and which cells have a defense or a behaviour that does not serve their protocol.

    Raises:
        FglauditError: data are missing or break a rule.
    """
    found, result = check_data(suite, _Describe(suite)), Opened()
    result.lines = list(_opened(suite, found, result.unserved))
    result.skipped = {spec for spec in suite.datasets if spec.name in LARGE or spec in found.too_large}
    return result


def _opened(suite: Suite, found: DataCheck, places: dict[int, str]) -> Iterator[Line]:
    described: dict[int, _Described] = {each.number: each for each in found.answers}
    for note in (*found.notes, *suite.default_notes()):
        yield Line(f"note: {note}")
    for number, spec in enumerate(suite.datasets):
        name = spec.path or spec.name
        if spec.name in LARGE or spec in found.too_large:
            why = found.too_large.get(spec)
            not_opened = Line(f"not opened: {name}, {expected_size(spec)}")
            yield _fails(f"datasets[{number}]: {why}") if why else not_opened
            continue
        # A process of its own that could not be asked, for a plugin of the suite, has not described it.
        here = described.get(number) or _described(suite, number, spec.load())
        places |= here.unserved
        yield from here.lines


class _Described(NamedTuple):
    """What is said of one data set of a suite: its lines, and why cells, by their place, will not be computed."""

    number: int
    lines: list[Line]
    unserved: dict[int, str]


@dataclass(frozen=True)
class _Describe:
    """Asked of every data set while it is loaded to be checked: to load a large graph takes minutes."""

    suite: Suite

    def __call__(self, graph: Graph, spec: DatasetSpec) -> Iterator[_Described]:
        yield _described(self.suite, self.suite.datasets.index(spec), graph)


def _described(suite: Suite, number: int, graph: Graph) -> _Described:
    spec, cells, seeds = suite.datasets[number], suite.cells(), len(suite.seeds)
    together = len(cells) // (len(suite.datasets) * len(suite.partitions))
    edges = graph.edge_index.shape[1] // 2
    size = f"{graph.num_nodes} nodes, {counted(edges, 'edge')}, {taken(graph)} of memory"
    lines, places = [Line(f"opened: {spec.path or spec.name}, {size}")], dict[int, str]()
    for i, partition in enumerate(suite.partitions):
        where = f"datasets[{number}], partitions[{i}]"
        try:
            split = partition.apply(graph, spec, derive(suite.seeds[0], "partition"))
        except FglauditError as error:
            lines.append(_fails(f"{where}: {error}"))
            continue
        lines += (_fails(f"{where}, {why}") for why in _unfit(split, suite.protocols))
        sizes = [len(nodes) for nodes in split.clients]
        lines.append(Line(f"  {arguments(partition)}: {counted(len(sizes), 'client')} of {_from_to(sizes)}"))
        lines += (Line(f"  note: {text}") for text in told(split, suite.protocols))
        first = (number * len(suite.partitions) + i) * together
        idle: dict[str, list[str]] = {}
        for place in range(first, first + together, seeds):
            if why := _unserved(cells[place], split):
                places |= dict.fromkeys(range(place, place + seeds), why)
                idle.setdefault(why, []).append(cell_label(cells[place]).rpartition(" seed ")[0])
        lines += (Line(f"  not applicable: {_and_more(labels)}: {why}") for why, labels in idle.items())
    return _Described(number, lines, places)


def _and_more(labels: Sequence[str]) -> str:
    """Return the first of ``labels``, and how many more there are: each cell stands in the plan above."""
    more = len(labels) - 1
    return f"{labels[0]} and {counted(more, 'setting')} more" if more else labels[0]


def _unserved(cell: Cell, split: FederatedGraph) -> str | None:
    """Return why ``cell`` will not be computed; None also where that is not known, or where it will fail."""
    if any(is_stand_in(plugin) for plugin in (cell.protocol, cell.defense, cell.behaviour)):
        return None
    try:
        return unserved(cell, split)
    except Exception:  # a plugin's own code: the run has it as a row that says so
        return None


def _unfit(split: FederatedGraph, protocols: Sequence[FederatedProtocol]) -> Iterator[str]:
    """Yield which protocols cannot use ``split``, and why."""
    for number, protocol in enumerate(protocols):
        try:
            if not is_stand_in(protocol):
                protocol.check(split)
        except FglauditError as error:
            yield f"protocols[{number}]: {error}"
        except Exception as error:  # an author's own code
            yield f"protocols[{number}]: its check ends in {type(error).__name__}: {error}"


def _from_to(sizes: Sequence[int]) -> str:
    least, most = min(sizes), max(sizes)
    return f"{least} to {most} nodes" if least < most else counted(most, "node")


def foretold(suite: Suite, data: Opened) -> Iterator[Line]:
    """Yield a line for every setting of ``suite`` that can be computed, and one for all: what they will take."""
    cells = [cell for place, cell in enumerate(suite.cells()) if place not in data.unserved]
    known, seconds, disk, kept, failing = 0, 0.0, 0, 0, 0
    yield Line(HEADING)
    largest, unknown = 0, dict[str, None]()
    for members, found in forecasts(cells, data.skipped):
        label = cell_label(members[0]).rpartition(" seed ")[0]
        fails = isinstance(found, str) and found.startswith(WILL_FAIL)
        failing += len(members) * fails
        yield Line(f"  {'1 cell' if len(members) == 1 else f'{len(members)} cells like'} {label}: {found}", fails)
        if isinstance(found, Forecast):
            known += len(members)
            seconds += len(members) * found.seconds
            disk = max(disk, found.disk)
            kept += len(members) * found.disk
            largest = max(largest, found.memory)
            unknown |= dict.fromkeys(found.unknown)
    if failing:
        yield Line(f"{failing} of {counted(len(cells), 'cell')} will fail in the first rounds: see above", fails=True)
    if not known:
        return
    disk_words = (
        f"{in_words(kept)} on disk, kept" if suite.record == "all" else f"{in_words(disk)} on disk per running cell"
    )
    missing = without(tuple(unknown))
    yield Line(
        f"{known} of {counted(len(cells), 'cell')}: {'at least' if missing else 'about'} {duration(seconds)} of one"
        f" core, {duration(seconds / available_cores())} on the {available_cores()} here{missing and f', {missing}'};"
        f" at least {in_words(largest)} of memory per job, {disk_words}"
    )
