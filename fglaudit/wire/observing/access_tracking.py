"""A client's graph that notes what is read of it: a change that the protocol never reads protects nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from fglaudit.graph import ClientGraph
from fglaudit.wire.observing.observed_graph import EDGE_FIELDS, same

ACROSS = frozenset({"remote_nodes", "remote_degrees", "boundary"})
"""Fields about edges to other clients."""
_FIELDS = frozenset(field.name for field in dataclasses.fields(ClientGraph))


class ReadGraphs:
    """What a defense changed in clients' graphs, and what the protocol read of them since."""

    def __init__(self) -> None:
        self._changed: set[str] = set()
        self._read: set[str] = set()

    def noting(self, before: ClientGraph, prepared: ClientGraph) -> ClientGraph:
        """Return a ``prepared`` graph for the protocol, which notes what is read of it beside what was changed."""
        names = ("x", *EDGE_FIELDS)
        self._changed.update(name for name in names if not same(getattr(before, name), getattr(prepared, name)))
        return NotedGraph.of(prepared, self._read)

    def in_vain(self, about: Iterable[str]) -> bool:
        """Whether some of the fields ``about`` were changed, and none of them was read."""
        fields = set(about)
        return bool(self._changed & fields) and not self._read & fields


class NotedGraph(ClientGraph):
    """What is read is noted, not what becomes of it; ``dataclasses.replace`` reads every field that it keeps."""

    @staticmethod
    def of(client: ClientGraph, read: set[str]) -> NotedGraph:
        """Return ``client``; names of its fields are added to ``read`` as they are read."""
        noted = NotedGraph(**{name: getattr(client, name) for name in _FIELDS})
        object.__setattr__(noted, "_read", read)  # the dataclass is frozen
        return noted

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS and (read := object.__getattribute__(self, "__dict__").get("_read")) is not None:
            read.add(name)
        return object.__getattribute__(self, name)
