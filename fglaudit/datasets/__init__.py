"""Data sets: the embedded block model, public sets read from raw files, and a user's own graph."""

from fglaudit.datasets.csbm import CsbmOptions
from fglaudit.datasets.csbm_tasks import CsbmTask
from fglaudit.datasets.facts import check_root, dataset_facts, dataset_names, verify_checksums
from fglaudit.datasets.fetch import fetch
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
