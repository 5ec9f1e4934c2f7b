"""A cell: one point of a suite's grid, fully resolved, with a content hash that names its record."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fglaudit import __version__, registry
from fglaudit.datasets import DatasetSpec
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.parties import HONEST
from fglaudit.parties.base import Behaviour
from fglaudit.partition import PartitionSpec
from fglaudit.registry import is_stand_in

Record = Literal["needed", "all"]
"""Which messages a run keeps: those that its attacks read, until they have; or all, for good."""
UNKNOWN_HASH = "not yet known   "
DIGITS = 12
"""Of a SHA-256, in tables and names."""
_REMEMBERED = 1_000
_described: dict[int, tuple[Any, dict[str, Any]]] = {}
"""By the identity of an object: the object, so that nothing else takes its identity, and its description."""


def describe(plugin: Any) -> dict[str, Any]:
    """Return a plugin or spec as plain JSON: its ``name`` (or ``scheme``) and fields."""
    values = {
        **dataclasses.asdict(plugin),
        **{name: [describe(part) for part in parts] for name, parts in stacked(plugin)},
    }
    name = getattr(type(plugin), "name", None)
    return {"name": name, **values} if isinstance(name, str) else values


def _described_once(plugin: Any) -> dict[str, Any]:
    """Return :func:`describe`, remembered: the cells of a suite share their parts, which are frozen. Equal parts are
    not the same: 1 and 1.0 are written differently."""
    if id(plugin) not in _described:
        if len(_described) >= _REMEMBERED:
            _described.clear()
        _described[id(plugin)] = plugin, describe(plugin)
    return dict(_described[id(plugin)][1])


def stacked(plugin: Any) -> Iterator[tuple[str, tuple[Defense, ...]]]:
    """Yield the fields of a plugin that hold defenses, with these."""
    for f in dataclasses.fields(plugin):
        value = getattr(plugin, f.name)
        if isinstance(value, tuple) and value and all(isinstance(part, Defense) for part in value):
            yield f.name, value


def arguments(plugin: Any) -> str:
    """Return as ``a=1;b=2``, for ``protocol_args`` and ``defense_args``, the fields that the plugin's ``shown`` names
    (what a reader compares) and all that differ from their defaults."""
    shown: tuple[str, ...] = getattr(type(plugin), "shown", ())
    nested = {name: "+".join(_call(part) for part in value) for name, value in stacked(plugin)}
    parts = []
    for f in dataclasses.fields(plugin):
        value = getattr(plugin, f.name)
        if f.name in shown or f.default is dataclasses.MISSING or value != f.default:
            parts.append(f"{f.name}={nested[f.name]}" if f.name in nested else _argument(f.name, value))
    return ";".join(parts)


def dataset_arguments(spec: DatasetSpec) -> str:
    """Return the column ``dataset_args``: the fields that differ from their defaults and are not in the column
    ``dataset``; of a graph of the user's own also the first digits of its content's SHA-256. Two graphs of one name
    differ in it."""
    parts = []
    for f in dataclasses.fields(spec):
        value = getattr(spec, f.name)
        if f.name in ("name", "root", "path", "features") or value == f.default:
            continue
        if dataclasses.is_dataclass(value):
            parts.append(arguments(value))
        else:
            parts.append(_argument(f.name, value[:DIGITS] if f.name == "sha256" else value))
    return ";".join(filter(None, parts))


def _argument(name: str, value: Any) -> str:
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def _call(defense: Defense) -> str:
    """Return ``name(a=1,b=2)``."""
    return f"{type(defense).name}({arguments(defense).replace(';', ',')})"


def identity(cell: Cell) -> dict[str, Any]:
    """Return the columns of ``findings.csv`` that say which training a row belongs to; ``cell`` is the training's
    hash."""
    partition = arguments(dataclasses.replace(cell.partition, clients=PartitionSpec.clients)).removeprefix("scheme=")
    return {
        "cell": training_hash(training(cell)),
        "dataset": dataset_name(cell.dataset),
        "dataset_args": dataset_arguments(cell.dataset),
        "partition": partition,
        "clients": cell.partition.clients,
        "protocol": type(cell.protocol).name,
        "protocol_args": arguments(cell.protocol),
        "server": cell.server,
        "defense": type(cell.defense).name,
        "defense_args": arguments(cell.defense),
        "seed": cell.seed,
    }


def training(cell: Cell) -> dict[str, Any]:
    """Return what ``cell`` trains as plain JSON, with the names by which the registry finds its plugins; who
    observes and attacks is not part of it."""
    apart = ("observers", "attacks", "record", "empirical")
    described = {key: value for key, value in cell.description().items() if key not in apart}
    classes = {
        "protocol_class": registry.reference(cell.protocol),
        "defense_class": registry.reference(cell.defense),
    }
    plain: dict[str, Any] = json.loads(json.dumps({**described, **classes}, default=str))
    return plain


def training_hash(description: Mapping[str, Any]) -> str:
    """Return 16 hex digits over a training's description and the package version; where files lie does not count."""
    data = {**description, "dataset": anywhere(description["dataset"])}
    text = json.dumps([__version__, data], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def anywhere(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return a data set's description without where its files lie: of a graph of the user's own, whose content is
    named by ``sha256``, the name alone is kept, as it stands in the column ``dataset``."""
    kept = {key: value for key, value in dataset.items() if key != "root"}
    if kept.get("path") is not None and kept.get("sha256") is not None:
        kept["path"] = Path(kept["path"]).stem
    return kept


def dataset_name(spec: DatasetSpec) -> str:
    """Return the column ``dataset``: of a graph of the user's own, its file's name."""
    return spec.called if spec.features == "raw" else f"{spec.called} ({spec.features})"


def server_label(behaviour: Behaviour | None) -> str:
    """Return the column ``server``: ``honest``, or ``name(a=1,b=2)``."""
    if behaviour is None:
        return HONEST
    return f"{type(behaviour).name}({arguments(behaviour).replace(';', ',')})"


@dataclass(frozen=True)
class Cell:
    """Data set x partition x protocol x server behaviour x defense x seed, with its observers and attacks."""

    dataset: DatasetSpec
    partition: PartitionSpec
    protocol: FederatedProtocol
    defense: Defense
    seed: int
    observers: tuple[ObserverSpec, ...]
    attacks: tuple[Attack, ...]
    record: Record = "needed"
    empirical: bool = True  # replay defended releases to bound epsilon from below
    behaviour: Behaviour | None = None  # of the party that breaks the rules; None: nobody does
    secret: bool = False  # training and noise are drawn with a key that nobody is told

    @property
    def server(self) -> str:
        """The column ``server``: see :func:`server_label`."""
        return server_label(self.behaviour)

    def description(self) -> dict[str, Any]:
        """Return the cell as plain JSON."""
        described = {
            "dataset": _described_once(self.dataset),
            "partition": _described_once(self.partition),
            "protocol": _described_once(self.protocol),
            "server": self.server if self.behaviour is None else _described_once(self.behaviour),
            "defense": _described_once(self.defense),
            "seed": self.seed,
            "observers": [_described_once(o) for o in self.observers],
            "attacks": [_described_once(a) for a in self.attacks],
            "record": self.record,
            "empirical": self.empirical,
        }
        return {**described, "secret": True} if self.secret else described

    def hash(self) -> str:
        """Return 16 hex digits over the description and the package version: equal cells are computed once.

        Neither the data root nor the folder of a graph of the user's own is part of it: where the files lie does not
        change what is in them. Of such a graph the content counts: its ``sha256``, which a suite pins when it is read.
        A cell with a plugin that was not imported has no hash yet: :data:`UNKNOWN_HASH`.
        """
        if any(map(is_stand_in, (self.protocol, self.defense, *self.attacks))):
            return UNKNOWN_HASH
        data = self.description()
        data["dataset"] = {k: v for k, v in anywhere(data["dataset"]).items() if k != "sha256"}
        if self.dataset.sha256 is not None:
            data["content"] = self.dataset.sha256
        plugins = (self.protocol, self.defense, *self.attacks)
        if borrowed := [registry.reference(plugin) for plugin in plugins if registry.borrows_a_name(plugin)]:
            data["classes"] = borrowed
        text = json.dumps([__version__, data], sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
