"""The entries under the keys of a suite, and the plugins, data sets and partitions that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError, shown
from fglaudit.files.user import is_file, user_path
from fglaudit.suite.cell import describe
from fglaudit.suite.plugin_files import Trust, near_suite
from fglaudit.suite.stacks import with_parts
from fglaudit.suite.sweep import expanded

_NAME_KEY = {"partitions": "scheme"}
"""Which key names what is meant, where that is not ``name``."""


def distinct(
    key: str,
    listed: Sequence[str | dict[str, Any]],
    build: Callable[[dict[str, Any], str], Any],
    apart: Callable[[Any, Mapping[str, Any]], bool] = lambda found, entry: False,
) -> tuple[Any, ...]:
    """Return what ``build`` makes of every entry under ``key``, given its place too.

    Args:
        apart: of two equal ones, whether one may stand beside the other for what its entry leaves open.

    Raises:
        FglauditError: two of them are equal, wherever their data lie.
    """
    built: dict[str, tuple[str, Any]] = {}
    for entry, where in _written(key, listed):
        found = build(dict(entry), where)
        identity = str((apart(found, entry), {k: v for k, v in describe(found).items() if k != "root"}))
        if identity in built:
            raise FglauditError(f"entries must differ; {where} repeats {built[identity][0]}; remove one")
        built[identity] = (where, found)
    return tuple(found for _, found in built.values())


def _written(key: str, listed: Sequence[str | dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the entries under ``key`` as mappings, each with its place; one for every value that a defense sweeps."""
    for i, entry in enumerate(listed):
        where = f"{key}[{i}]"
        named = {_NAME_KEY.get(key, "name"): entry} if isinstance(entry, str) else entry
        yield from expanded(named, where) if key == "defenses" else [(named, where)]


@dataclass(frozen=True)
class NamedPlugins:
    """Builds the plugins that a suite names.

    Attributes:
        files: the plugin files that were checked.
        folder: of the suite file; None for suites that are no file.
    """

    files: frozenset[str]
    folder: Path | None
    trust: Trust

    def build(self, kind: str, entry: dict[str, Any], where: str) -> Any:
        """Return the ``kind`` that ``entry`` names: built, or a stand-in where its file may not be imported.

        Raises:
            FglauditError: no name, an unknown one, or fields that it refuses.
        """
        if kind == "defense":
            entry = with_parts(entry, where, partial(self.build, "defense"))
        name = entry.pop("name", None)
        if not isinstance(name, str):
            raise FglauditError(f"{where}: {registry.nameless(kind, entry)}")
        if ".py:" not in name:
            return registry.build(kind, name, entry, where)
        found = near_suite(name, self.folder)
        if found.rpartition(":")[0] not in self.files:
            raise FglauditError(f"{where}: a plugin is given as file.py:Class; got {shown(name)}; correct it")
        return (registry.build if self.trust.imports else registry.stand_in)(kind, found, entry, where)


def located_dataset(entry: dict[str, Any], where: str, *, folder: Path | None) -> DatasetSpec:
    """Return the data set of an entry; an own graph is looked for from here, else in ``folder``."""
    return dataset_spec(_located(entry, folder, where), where)


def _located(entry: dict[str, Any], folder: Path | None, where: str) -> dict[str, Any]:
    """Return a data set's entry with the path of an own graph as it is found: from here, else beside the suite file."""
    written = entry.get("path")
    if folder is None or not isinstance(written, str):
        return entry
    path = user_path(written, "the path of an own graph")
    if is_file(path) or path.is_absolute():
        return entry
    if not is_file(folder / path):
        raise FglauditError(
            f"{where}: the path of an own graph must lead to a file; there is no {path} in {Path.cwd()}, nor beside the"
            f" suite in {folder.absolute()}; correct the path, or make the file with fglaudit import"
        )
    return {**entry, "path": str(folder / path)}


def dataset_spec(entry: dict[str, Any], where: str = "") -> DatasetSpec:
    """Return the data set that a suite entry names; an own graph is pinned to the content that its file has now."""
    spec: DatasetSpec = registry.construct(DatasetSpec, "data set", entry, where)
    try:
        return spec.pinned()
    except FglauditError as error:
        raise FglauditError(f"{where}: {error}" if where else str(error)) from error
