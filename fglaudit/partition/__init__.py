"""How a graph is split over clients. Names are imported when asked for: the list of schemes needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fglaudit.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from fglaudit.partition.facts import partition_facts
    from fglaudit.partition.schemes import partition_schemes
    from fglaudit.partition.spec import PartitionSpec

__all__ = ["PartitionSpec", "partition_facts", "partition_schemes"]

_HOMES = {
    "PartitionSpec": "fglaudit.partition.spec",
    "partition_facts": "fglaudit.partition.facts",
    "partition_schemes": "fglaudit.partition.schemes",
}

__getattr__, __dir__ = lazy_imports(__name__, _HOMES)
