"""Data sets: the built-in block model, public sets read from raw files, and a user's own graph.

Names are imported when asked for: the list of data sets, and which files are there, need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fglaudit.datasets.fetch import fetch as fetch  # itself, not the module of that name
from fglaudit.lazy_imports import lazy_imports

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
    "CsbmOptions": "fglaudit.datasets.csbm_options",
    "CsbmTask": "fglaudit.datasets.csbm_tasks",
    "DatasetSpec": "fglaudit.datasets.spec",
    "check_root": "fglaudit.datasets.holdings",
    "dataset_facts": "fglaudit.datasets.facts",
    "dataset_names": "fglaudit.datasets.holdings",
    "verify_checksums": "fglaudit.datasets.holdings",
}

__getattr__, __dir__ = lazy_imports(__name__, _HOMES)
