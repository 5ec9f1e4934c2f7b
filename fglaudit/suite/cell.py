"""A cell: one point of a suite's grid, fully resolved, with a content hash that names its record."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from fglaudit import __version__
from fglaudit.datasets import DatasetSpec
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.registry import is_stand_in

UNKNOWN_HASH = "not yet known   "


def describe(plugin: Any) -> dict[str, Any]:
    """Return a plugin or spec as plain JSON: its ``name`` (or ``scheme``) and fields."""
    values = dataclasses.asdict(plugin)
    name = getattr(type(plugin), "name", None)
    return {"name": name, **values} if isinstance(name, str) else values


def arguments(plugin: Any) -> str:
    """Return as ``a=1;b=2``, for ``protocol_args`` and ``defense_args``, the fields that the plugin's ``shown`` names
    (what a reader compares) and all that differ from their defaults."""
    shown: tuple[str, ...] = getattr(type(plugin), "shown", ())
    parts = []
    for f in dataclasses.fields(plugin):
        value = getattr(plugin, f.name)
        if f.name in shown or f.default is dataclasses.MISSING or value != f.default:
            parts.append(f"{f.name}={value:g}" if isinstance(value, float) else f"{f.name}={value}")
    return ";".join(parts)


@dataclass(frozen=True)
class Cell:
    """Data set x partition x protocol x server behaviour x defense x seed, with its observers and attacks."""

    dataset: DatasetSpec
    partition: PartitionSpec
    protocol: FederatedProtocol
    server: str
    defense: Defense
    seed: int
    observers: tuple[ObserverSpec, ...]
    attacks: tuple[Attack, ...]
    record: str = "needed"  # needed | all
    empirical: bool = True  # replay defended releases to bound epsilon from below

    def description(self) -> dict[str, Any]:
        """Return the cell as plain JSON."""
        return {
            "dataset": describe(self.dataset),
            "partition": describe(self.partition),
            "protocol": describe(self.protocol),
            "server": self.server,
            "defense": describe(self.defense),
            "seed": self.seed,
            "observers": [dataclasses.asdict(o) for o in self.observers],
            "attacks": [describe(a) for a in self.attacks],
            "record": self.record,
            "empirical": self.empirical,
        }

    def hash(self) -> str:
        """Return 16 hex digits over the description and the package version: equal cells are computed once.

        The data root is not part of it: where the files lie does not change what is in them. Of a graph of the user's
        own the content counts: its ``sha256``, which a suite pins when it is read. A cell with a plugin that was not
        imported has no hash yet: :data:`UNKNOWN_HASH`.
        """
        if any(map(is_stand_in, (self.protocol, self.defense, *self.attacks))):
            return UNKNOWN_HASH
        data = self.description()
        data["dataset"] = {k: v for k, v in data["dataset"].items() if k not in ("root", "sha256")}
        if self.dataset.sha256 is not None:
            data["content"] = self.dataset.sha256
        text = json.dumps([__version__, data], sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
