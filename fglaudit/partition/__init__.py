"""How a graph is split over clients. Names are imported when asked for: the list of schemes needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fglaudit.partition.facts import partition_facts
    from fglaudit.partition.schemes import partition_schemes
    from fglaudit.partition.spec import PartitionSpec

__all__ = ["PartitionSpec", "partition_facts", "partition_schemes"]

_HOMES = {"PartitionSpec": "spec", "partition_facts": "facts", "partition_schemes": "schemes"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the names to be used, also those that were not asked for yet: for ``help`` and completion."""
    return sorted({*globals(), *__all__})
