"""A suite: a grid of cells x observers x attacks, written as strict YAML.

Everything that can be known to be wrong without training is refused here: unknown keys and names (the nearest known one
is named), wrong types, observers that do not exist in a partition, a partition that a protocol cannot use, repeated
entries.

Whatever the text is, it ends in a suite or in one :class:`FglauditError`: :mod:`fglaudit.suite.yaml_text` reads it into
plain data of bounded size, and every value is checked by type and range before a plugin sees it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError, shown
from fglaudit.files import limits
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.parties import HONEST
from fglaudit.parties.base import Behaviour
from fglaudit.parties.named import behaviour
from fglaudit.partition import PartitionSpec
from fglaudit.suite.cell import Cell, Record, describe, server_label, stacked
from fglaudit.suite.checks import check_attacks, check_observers, check_partition_fits, check_seeds, check_servers
from fglaudit.suite.dataset_defaults import check_apart, default_notes, left_open, on_dataset, without_open
from fglaudit.suite.entries import NamedPlugins, distinct, located_dataset
from fglaudit.suite.plugin_files import Trust, check_plugin_files
from fglaudit.suite.schema import SuiteFile, validated


@dataclass(frozen=True)
class Suite:
    """A suite with every name resolved and every value checked."""

    name: str
    datasets: tuple[DatasetSpec, ...]
    partitions: tuple[PartitionSpec, ...]
    protocols: tuple[FederatedProtocol, ...]
    server: tuple[Behaviour | None, ...]
    defenses: tuple[Defense, ...]
    observers: tuple[ObserverSpec, ...]
    attacks: tuple[Attack, ...]
    record: Record
    empirical: bool
    seeds: tuple[int, ...]
    all_attacks: bool = False
    left_open: tuple[int, ...] = ()  # places in ``protocols`` of those that leave open what hangs on the data set
    plugins: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each plugin file by its absolute path

    def cells(self) -> list[Cell]:
        """Return the grid in order: data set, partition, protocol, server, defense, seed (the last varies fastest)."""
        protocols = [(p, i in self.left_open, self.attacks_on(p)) for i, p in enumerate(self.protocols)]
        grid = itertools.product(self.datasets, self.partitions, protocols, self.server, self.defenses, self.seeds)
        return [
            Cell(
                dataset=dataset,
                partition=partition,
                protocol=on_dataset(protocol, dataset) if is_open else protocol,
                defense=defense,
                seed=seed,
                observers=self.observers,
                attacks=attacks,
                record=self.record,
                empirical=self.empirical,
                behaviour=behaviour,
            )
            for dataset, partition, (protocol, is_open, attacks), behaviour, defense, seed in grid
        ]

    def attacks_on(self, protocol: FederatedProtocol) -> tuple[Attack, ...]:
        """Return the attacks to run on ``protocol``: the ones listed; for ``attacks: all`` the ones whose payloads it
        all sends (where none fits, all of them, so that every observer still has rows that say so)."""
        return fitting(protocol, self.attacks) if self.all_attacks else self.attacks

    def default_notes(self) -> Iterator[str]:
        """Yield which protocols train with other values on a data set than their class's."""
        return default_notes(self.datasets, [self.protocols[i] for i in self.left_open])

    def resolved(self) -> dict[str, Any]:
        """Return the suite as plain data, which ``suite.yaml`` of a run holds, with all defaults filled in but those
        that hang on the data set."""
        data = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name not in ("all_attacks", "left_open")
        }
        for key in ("datasets", "partitions"):
            data[key] = [_plain(describe(entry)) for entry in data[key]]
        for key in ("protocols", "defenses", "attacks"):
            data[key] = [_written_back(entry) for entry in data[key]]
        for i in self.left_open:
            data["protocols"][i] = without_open(data["protocols"][i], self.protocols[i])
        data["server"] = [HONEST if one is None else _plain(describe(one)) for one in self.server]
        data["observers"] = [_plain(dataclasses.asdict(o)) for o in self.observers]
        if self.all_attacks:
            data["attacks"] = "all"
        if not self.plugins:
            del data["plugins"]
        plain: dict[str, Any] = _plain(data)
        return plain


def fitting(protocol: FederatedProtocol, attacks: Sequence[Attack]) -> tuple[Attack, ...]:
    """Return those of ``attacks`` whose payloads ``protocol`` all sends; all of them where none fits. Those that run on
    request alone are left out."""
    sent = set(type(protocol).emits)
    attacks = [attack for attack in attacks if not type(attack).on_request]

    def fits(attack: Attack) -> bool:
        return sent.issuperset(type(attack).consumes) and not sent.isdisjoint(type(attack).reads())

    return tuple(filter(fits, attacks)) or tuple(attacks)


def _written_back(plugin: Any) -> dict[str, Any]:
    """Return the entry of a suite that names ``plugin`` with all its fields."""
    parts = {name: [_written_back(part) for part in defenses] for name, defenses in stacked(plugin)}
    entry: dict[str, Any] = _plain({**describe(plugin), "name": registry.reference(plugin), **parts})
    return entry


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def resolve(data: dict[str, Any], source: str, relative_to: Path | None = None, trust: Trust | None = None) -> Suite:
    """Check the raw keys of a suite and build everything they name.

    Args:
        source: the suite's name or path, for messages.
        relative_to: folder of the suite file; plugin files ``file.py:Class`` are looked for there if not found from
            here.
        trust: which plugin files may run; by default those in ``relative_to`` and those that the suite pins.

    Raises:
        FglauditError: for the first thing that is wrong, saying where.
    """
    try:
        return _resolve(validated(data), relative_to, trust or Trust())
    except FglauditError as error:
        raise FglauditError(f"suite {source}: {error}") from error


def _resolve(raw: SuiteFile, relative_to: Path | None, trust: Trust) -> Suite:
    """Build what the keys of a suite name. Plugin files are checked, and imported, before the first plugin is built."""
    files = check_plugin_files([raw.protocols, raw.defenses, raw.attacks], raw.plugins, relative_to, trust)
    named = NamedPlugins(frozenset(str(file.path) for file in files), relative_to, trust)
    behaviours = tuple(behaviour(entry, f"server[{i}]") for i, entry in enumerate(raw.server))
    cells = _counted_cells(raw, behaviours)
    attacks = registry.names("attack") if raw.attacks == "all" else raw.attacks
    protocols = distinct("protocols", raw.protocols, partial(named.build, "protocol"), left_open)
    suite = Suite(
        name=raw.name,
        datasets=distinct("datasets", raw.datasets, partial(located_dataset, folder=relative_to)),
        partitions=distinct("partitions", raw.partitions, partial(registry.construct, PartitionSpec, "partition")),
        protocols=protocols,
        server=behaviours,
        defenses=distinct("defenses", raw.defenses, partial(named.build, "defense")),
        observers=tuple(observer.spec() for observer in raw.observers),
        attacks=distinct("attacks", attacks, partial(named.build, "attack")),
        record=raw.record,
        empirical=raw.empirical,
        seeds=tuple(raw.seeds),
        all_attacks=raw.attacks == "all",
        left_open=tuple(i for i, entry in enumerate(raw.protocols) if left_open(protocols[i], entry)),
        plugins={str(file.path): file.sha256 for file in files},
    )
    if (rows := cells * len(suite.observers) * len(suite.attacks)) > limits.ROWS:
        raise FglauditError(
            f"a suite may have {limits.ROWS} cells x observers x attacks; got {rows}; split it into several suites"
        )
    check_observers(suite.observers, suite.partitions)
    check_servers(suite.server, suite.partitions, suite.protocols)
    check_attacks(suite.attacks)
    check_partition_fits(suite.protocols, suite.partitions)
    check_apart(suite.datasets, suite.protocols, suite.left_open)
    return suite


def _counted_cells(raw: SuiteFile, behaviours: Sequence[Behaviour | None]) -> int:
    """Return how many cells the suite has.

    Raises:
        FglauditError: seeds or behaviours that are no such or repeated, or too many cells.
    """
    check_seeds(raw.seeds)
    labels = [server_label(one) for one in behaviours]
    if len(set(labels)) < len(labels):
        raise FglauditError(f"server: entries must differ; got {shown(labels)}; remove the repeated one")
    axes = (raw.datasets, raw.partitions, raw.protocols, raw.server, raw.defenses, raw.seeds)
    if (cells := math.prod(len(axis) for axis in axes)) > limits.CELLS:
        raise FglauditError(f"a suite may have {limits.CELLS} cells; got {cells}; split it into several suites")
    return cells
