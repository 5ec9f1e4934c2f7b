"""Data sets: the built-in block model, public sets read from raw files, and a user's own graph.

Names are imported when asked for: the list of data sets, and which files are there, need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fglaudit.datasets.fetch import fetch as fetch  # itself, not the module of that name

if TYPE_CHECKING:
    from fglaudit.datasets.csbm_options import CsbmOptions
    from fglaudit.datasets.csbm_tasks import CsbmTask
    from fglaudit.datasets.facts import dataset_facts
    from fglaudit.datasets.holdings import check_root, dataset_names, verify_checksums
    from fglaudit.datasets.spec import DatasetSpec

__all__ = [
    "CsbmOptions",
    "CsbmTask",
    "DatasetSpec",
    "check_root",
    "dataset_facts",
    "dataset_names",
    "fetch",
    "verify_checksums",
]

_HOMES = {
    "CsbmOptions": "csbm_options",
    "CsbmTask": "csbm_tasks",
    "DatasetSpec": "spec",
    "check_root": "holdings",
    "dataset_facts": "facts",
    "dataset_names": "holdings",
    "verify_checksums": "holdings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the names to be used, also those that were not asked for yet: for ``help`` and completion."""
    return sorted({*globals(), *__all__})
