"""fglaudit audits the privacy of federated graph learning: train, record, attack, report.

From Python: :func:`audit` goes from a graph in memory to a :class:`Report` in one call. Step by step,
:func:`load_suite` reads a suite and its cells, :func:`record` trains a cell and records it, :func:`run_attacks` attacks
the recording, :func:`score` brings in the truth. They are imported when asked for, so that ``import fglaudit`` is
quick. Which other modules have names for you: ``docs/use.md``, "Names that stay".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fglaudit.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from fglaudit.attacking import run_attacks
    from fglaudit.auditing import Report, audit
    from fglaudit.datasets.spec import DatasetSpec
    from fglaudit.errors import FglauditError
    from fglaudit.observers import ObserverSpec
    from fglaudit.partition import PartitionSpec
    from fglaudit.recording import Recording, record
    from fglaudit.scoring.score import score
    from fglaudit.suite.overrides import load_suite

__version__ = "0.1.0"
__all__ = [
    "DatasetSpec",
    "FglauditError",
    "ObserverSpec",
    "PartitionSpec",
    "Recording",
    "Report",
    "__version__",
    "audit",
    "load_suite",
    "record",
    "run_attacks",
    "score",
]

_HOMES = {
    "DatasetSpec": "fglaudit.datasets.spec",
    "FglauditError": "fglaudit.errors",
    "ObserverSpec": "fglaudit.observers",
    "PartitionSpec": "fglaudit.partition",
    "Recording": "fglaudit.recording",
    "Report": "fglaudit.auditing",
    "audit": "fglaudit.auditing",
    "load_suite": "fglaudit.suite.overrides",
    "record": "fglaudit.recording",
    "run_attacks": "fglaudit.attacking",
    "score": "fglaudit.scoring.score",
}

__getattr__, __dir__ = lazy_imports(__name__, _HOMES)
