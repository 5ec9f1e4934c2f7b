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
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files import limits, plain_words
from fglaudit.files.user import is_file, is_folder, read_text, user_path
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.parties import HONEST
from fglaudit.parties.base import Behaviour
from fglaudit.parties.named import behaviour
from fglaudit.partition import PartitionSpec
from fglaudit.suite.cell import Cell, describe, server_label, stacked
from fglaudit.suite.checks import check_attacks, check_observers, check_partition_fits, check_seeds, check_servers
from fglaudit.suite.embedded import embedded as embedded
from fglaudit.suite.entries import NamedPlugins, distinct, located_dataset
from fglaudit.suite.plugin_files import Trust, check_plugin_files
from fglaudit.suite.yaml_text import read_yaml


class _Observer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    parties: list[str] = Field(min_length=1)
    topology: bool = False
    degrees: bool | None = None
    initial_weights: bool = False
    auxiliary: float = Field(default=0.0, ge=0, lt=1)
    sensitive: list[int] = Field(default=[])


def _observer(raw: _Observer) -> ObserverSpec:
    lists = {"parties": tuple(raw.parties), "sensitive": tuple(raw.sensitive)}
    return ObserverSpec(**{**raw.model_dump(), **lists})


class _SuiteFile(BaseModel):
    """The keys of a suite as written; plugins and specs are resolved afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    datasets: list[str | dict[str, Any]] = Field(min_length=1)
    partitions: list[str | dict[str, Any]] = Field(min_length=1)
    protocols: list[str | dict[str, Any]] = Field(min_length=1)
    server: list[str | dict[str, Any]] = Field(default=["honest"], min_length=1)
    defenses: list[str | dict[str, Any]] = Field(default=["none"], min_length=1)
    observers: list[_Observer] = Field(min_length=1)
    attacks: Literal["all"] | Annotated[list[str | dict[str, Any]], Field(min_length=1)] = "all"
    record: Literal["needed", "all"] = "needed"
    empirical: bool = True
    seeds: list[int] = Field(default=[0], min_length=1)
    plugins: dict[str, str] = Field(default={})


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
    record: str
    empirical: bool
    seeds: tuple[int, ...]
    all_attacks: bool = False
    plugins: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each plugin file by its absolute path

    def cells(self) -> list[Cell]:
        """Return the grid in order: data set, partition, protocol, server, defense, seed (the last varies fastest)."""
        protocols = [(protocol, self.attacks_on(protocol)) for protocol in self.protocols]
        grid = itertools.product(self.datasets, self.partitions, protocols, self.server, self.defenses, self.seeds)
        return [
            Cell(
                dataset=dataset,
                partition=partition,
                protocol=protocol,
                server=server_label(behaviour),
                defense=defense,
                seed=seed,
                observers=self.observers,
                attacks=attacks,
                record=self.record,
                empirical=self.empirical,
                behaviour=behaviour,
            )
            for dataset, partition, (protocol, attacks), behaviour, defense, seed in grid
        ]

    def attacks_on(self, protocol: FederatedProtocol) -> tuple[Attack, ...]:
        """Return the attacks to run on ``protocol``: the ones listed; for ``attacks: all`` the ones whose payloads it
        all sends (where none fits, all of them, so that every observer still has rows that say so)."""
        return fitting(protocol, self.attacks) if self.all_attacks else self.attacks

    def resolved(self) -> dict[str, Any]:
        """Return the suite as plain data with all defaults filled in; ``suite.yaml`` of a run holds it."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "all_attacks"}
        for key in ("datasets", "partitions"):
            data[key] = [_plain(describe(entry)) for entry in data[key]]
        for key in ("protocols", "defenses", "attacks"):
            data[key] = [_written_back(entry) for entry in data[key]]
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


def read(name_or_path: str) -> tuple[dict[str, Any], Path | None]:
    """Return the raw keys of an embedded suite or of a YAML file, and the file's path.

    Raises:
        FglauditError: if there is no such suite or the file is not readable YAML.
    """
    texts = embedded()
    if name_or_path in texts:
        return parse(texts[name_or_path], name_or_path), None
    path = user_path(name_or_path, "a suite file")
    if is_folder(path):
        raise FglauditError(
            f"a suite is an embedded one or a YAML file; {shown(name_or_path)} is a folder; name the file in it, or"
            " one that fglaudit list suites prints"
        )
    if not is_file(path):
        if path.suffix in (".yaml", ".yml") or "/" in name_or_path:
            raise FglauditError(
                f"a suite file must exist; there is no file {path} (embedded suites: {', '.join(sorted(texts))})"
            )
        beside = next((f"{name_or_path}{end}" for end in (".yaml", ".yml") if is_file(Path(f"{path}{end}"))), None)
        if beside is not None:
            raise FglauditError(
                f"a suite is an embedded one or a YAML file; got {shown(name_or_path)}, which is neither; write"
                f" {shown(beside)[1:-1]}, which is here"
            )
        raise unknown("suite", name_or_path, texts)
    return parse(read_text(path, "a suite file", limits.SUITE_BYTES), str(path)), path


def parse(text: str, source: str) -> dict[str, Any]:
    """Return the keys of a suite's YAML ``text``; ``source`` names it in messages.

    Raises:
        FglauditError: if the text is no YAML mapping of plain values, or beyond :mod:`fglaudit.files.limits`.
    """
    try:
        data = read_yaml(text)
    except FglauditError as error:
        raise FglauditError(f"{source}: {error}") from error
    if not isinstance(data, dict):
        raise FglauditError(
            f"a suite must be a mapping with keys {', '.join(_SuiteFile.model_fields)}; {source} is"
            f" {'empty' if data is None else shown(data)}; write e.g. {_EXAMPLES['name']} and {_EXAMPLES['datasets']}"
            " (fglaudit show quickstart prints a whole one)"
        )
    return data


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
        return _resolve(_validated(data), relative_to, trust or Trust())
    except FglauditError as error:
        raise FglauditError(f"suite {source}: {error}") from error


def _validated(data: dict[str, Any]) -> _SuiteFile:
    try:
        return _SuiteFile.model_validate(data)
    except ValidationError as error:
        # Of a union such as "text | mapping" pydantic reports every branch: an unknown key, or what lies deepest, says
        # most.
        problems = sorted(error.errors(), key=lambda e: (e["type"] != "extra_forbidden", -len(e["loc"])))
        problem = problems[0]
        where = _place(problem["loc"])
        same = [each for each in problems if _place(each["loc"]) == where]
        if problem["type"] == "extra_forbidden":
            model = _Observer if problem["loc"][0] == "observers" else _SuiteFile
            key, parent = str(problem["loc"][-1]), _place(problem["loc"][:-1])
            raise FglauditError(
                f"{parent + ': ' if parent else ''}{unknown('key', key, model.model_fields)}"
            ) from error
        if problem["type"] == "missing":
            raise FglauditError(
                f"the key {where} is required; write e.g. {_EXAMPLES.get(where, where + ': ...')}"
            ) from error
        if problem["type"] == "string_pattern_mismatch":  # of the name, which files are called by
            rule = ": a name has letters a to z or A to Z, digits, dots, dashes, underscores, a letter or digit first"
        else:
            rule = f" {plain_words.rule(same)}"
        plain = plain_words.fix(rule.strip(), problem["input"])
        fix = f"; {plain}" if plain else _example(where)
        raise FglauditError(f"{where}{rule}; got {shown(problem['input'])}{fix}") from error


_EXAMPLES = {
    "name": "name: my-suite",
    "datasets": "datasets: [{name: csbm-cora}]",
    "partitions": "partitions: [{scheme: dirichlet, clients: 10, beta: 10000}]",
    "protocols": "protocols: [{name: fedgcn, hops: 1}]",
    "server": "server: [honest]",
    "defenses": "defenses: [{name: none}]",
    "observers": 'observers: [{parties: [server]}, {parties: ["client:each"]}]',
    "attacks": "attacks: all, or attacks: [subset-sum, row-space]",
    "auxiliary": "auxiliary: 0.1, for one row in ten",
    "record": "record: needed",
    "empirical": "empirical: true",
    "seeds": "seeds: [0, 1, 2]",
    "plugins": "protocols: [{name: my_protocol.py:MyProtocol}], which runs a file beside the suite; for files elsewhere"
    " plugins: {my_protocol.py: SHA-256 of the file in hex digits}",
}


def _example(where: str) -> str:
    parts = re.split(r"[.\[]", where)
    example = _EXAMPLES.get(parts[-1]) or _EXAMPLES.get(parts[0])
    return f"; write e.g. {example}" if example else ""


def _place(loc: Sequence[int | str]) -> str:
    """``("protocols", 1, "hops")`` as ``protocols[1].hops``; pydantic's names of union branches are left out."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part in _SuiteFile.model_fields or part in _Observer.model_fields or text == "plugins":
            text += f".{part}" if text else part
    return text


def _resolve(raw: _SuiteFile, relative_to: Path | None, trust: Trust) -> Suite:
    """Build what the keys of a suite name. Plugin files are checked, and imported, before the first plugin is built."""
    files = check_plugin_files([raw.protocols, raw.defenses, raw.attacks], raw.plugins, relative_to, trust)
    named = NamedPlugins(frozenset(str(file.path) for file in files), relative_to, trust)
    behaviours = tuple(behaviour(entry, f"server[{i}]") for i, entry in enumerate(raw.server))
    cells = _counted_cells(raw, behaviours)
    attacks = registry.names("attack") if raw.attacks == "all" else raw.attacks
    suite = Suite(
        name=raw.name,
        datasets=distinct("datasets", raw.datasets, partial(located_dataset, folder=relative_to)),
        partitions=distinct("partitions", raw.partitions, partial(registry.construct, PartitionSpec, "partition")),
        protocols=distinct("protocols", raw.protocols, partial(named.build, "protocol")),
        server=behaviours,
        defenses=distinct("defenses", raw.defenses, partial(named.build, "defense")),
        observers=tuple(_observer(o) for o in raw.observers),
        attacks=distinct("attacks", attacks, partial(named.build, "attack")),
        record=raw.record,
        empirical=raw.empirical,
        seeds=tuple(raw.seeds),
        all_attacks=raw.attacks == "all",
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
    return suite


def _counted_cells(raw: _SuiteFile, behaviours: Sequence[Behaviour | None]) -> int:
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
