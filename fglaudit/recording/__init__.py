"""One training run, recorded: what every attack needs, and all it gets.

:func:`record` trains a cell, :func:`record_training` a protocol on a graph at hand. Both return a :class:`Recording`
and, apart from it, the truth for the scorer.
"""

from fglaudit.recording.of_cell import NotApplicableError, record, unserved
from fglaudit.recording.of_training import Kept, Progress, record_training
from fglaudit.recording.recording import Recording, protocol_of

__all__ = [
    "Kept",
    "NotApplicableError",
    "Progress",
    "Recording",
    "protocol_of",
    "record",
    "record_training",
    "unserved",
]
