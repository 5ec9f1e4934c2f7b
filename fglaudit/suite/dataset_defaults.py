"""Defaults of a protocol that hang on the data set: its paper has settings for some, and others train badly with them.

They stand in place of the class's own where a suite gives none of the fields that they set: whoever gives one decides
on all. Cells have them written out, so records, hashes and ``protocol_args`` say what was trained with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, cast

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.interfaces import FederatedProtocol
from fglaudit.suite.cell import describe


def left_open(protocol: FederatedProtocol, entry: str | Mapping[str, Any]) -> bool:
    """Return whether ``entry``, of which ``protocol`` was built, gives no field with a default by data set."""
    return bool(names := _names(protocol)) and (isinstance(entry, str) or names.isdisjoint(entry))


def check_apart(
    datasets: Sequence[DatasetSpec], protocols: Sequence[FederatedProtocol], is_open: Container[int]
) -> None:
    """Raise :class:`FglauditError` where two of ``protocols`` are the same on a data set; ``is_open`` has the places of
    those that leave open what hangs on it."""
    for dataset in datasets:
        first: dict[str, int] = {}
        for i, protocol in enumerate(protocols):
            trained = on_dataset(protocol, dataset) if i in is_open else protocol
            if (same := first.setdefault(str(describe(trained)), i)) != i:
                raise FglauditError(
                    f"entries must differ; protocols[{i}] repeats protocols[{same}] on {dataset.name}; remove one"
                )


def on_dataset(protocol: FederatedProtocol, dataset: DatasetSpec) -> FederatedProtocol:
    """Return ``protocol`` with its defaults on ``dataset``.

    Raises:
        FglauditError: the protocol has no such field.
    """
    changed = type(protocol).on_datasets.get(dataset.name, {})
    if lacking := set(changed) - {f.name for f in dataclasses.fields(cast(Any, protocol))}:
        raise FglauditError(
            "on_datasets of a protocol names fields of it;"
            f" {protocol.name} has no {', '.join(sorted(lacking))}; correct it"
        )
    return dataclasses.replace(cast(Any, protocol), **changed) if changed else protocol


def without_open(entry: Mapping[str, Any], protocol: FederatedProtocol) -> dict[str, Any]:
    """Return the entry of a suite that leaves open what hangs on the data set."""
    names = _names(protocol)
    return {name: value for name, value in entry.items() if name not in names}


def default_notes(datasets: Sequence[DatasetSpec], protocols: Sequence[FederatedProtocol]) -> Iterator[str]:
    """Yield which of ``protocols``, whose fields are left open, train with other values than their class's."""
    for name in dict.fromkeys(dataset.name for dataset in datasets):
        training: dict[str, dict[str, None]] = {}
        for protocol in protocols:
            if changed := protocol.on_datasets.get(name):
                given = ", ".join(f"{key}: {value}" for key, value in changed.items())
                training.setdefault(given, {})[protocol.name] = None
        for given, named in training.items():
            yield f"{name}: defaults of {', '.join(named)} are {given} there; an entry that gives one decides on all"


def _names(protocol: FederatedProtocol) -> set[str]:
    """Return the fields whose defaults hang on the data set."""
    return {name for fields in type(protocol).on_datasets.values() for name in fields}
