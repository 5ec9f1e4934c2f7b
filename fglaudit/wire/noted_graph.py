"""A client's graph that notes what is read of it: a change that the protocol never reads protects nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from fglaudit.graph import ClientGraph

ACROSS = frozenset({"remote_nodes", "remote_degrees", "boundary"})
"""Fields about edges to other clients."""
_FIELDS = frozenset(field.name for field in dataclasses.fields(ClientGraph))


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
