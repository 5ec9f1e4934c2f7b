"""How large what a user writes may be.

Every limit is far above what an audit needs and low enough that reading, checking and refusing take seconds. A number
beyond it is nearly always a slip or a file that was tampered with; the message names the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fglaudit.errors import FglauditError, shown

SUITE_BYTES = 2**18
SUITE_DEPTH = 24
SUITE_VALUES = 20_000
"""Keys and values of a suite with its aliases written out."""
TEXT = 2_000
"""Characters of one text in a suite."""
INTEGER = 2**63 - 1
CELLS = 20_000
ROWS = 2_000_000
"""Of findings: cells x observers x attacks."""
PLUGIN_BYTES = 2**24

FEATURE = 1e15
"""Largest absolute value of an entry of an own feature matrix: float32 holds the sum of 10^8 such squares."""
ENTRIES = 2**29
"""Entries of a drawn feature matrix: 2 GiB of float32, of which drawing holds several."""
PAIRS = 2**27
"""Entries of a matrix over all pairs of nodes."""
DRAWN = 3 * 10**7
"""Numbers that may be drawn again and again until a graph fits."""
CLASSES = 10_000

REAL = 3.4e38
"""Of a number that is no whole one: training computes in single precision, which holds no more."""
MOST = 1_000_000
"""Of a whole number that :data:`SIZES` does not name."""
SIZES: Mapping[str, int] = {
    "hops": 64,
    "layers": 64,
    "heads": 256,
    "output_heads": 256,
    "powers": 256,
    "bits": 64,
    "propagation_steps": 10_000,
    "encoding": 4_096,
    "global_nodes": 65_536,
    "hidden": 65_536,
    "feed_forward": 65_536,
    "random_features": 65_536,
    "classes": CLASSES,
    "nodes": 10_000_000,
    "clients": 10_000_000,
    "dimensions": 10_000_000,
    "class_sizes": 10_000_000,
    "edges": 1_000_000_000,
    "pairs": 1_000_000_000,
    "seed": INTEGER,
    "draw": INTEGER,
    "topology": INTEGER,
}
"""Largest absolute value of whole numbers by the name of the field. A plugin of one's own states another limit in its
field: ``field(default=3, metadata={"most": 10**9})``."""


def refuse_large(value: Any, name: str, what: str, metadata: Mapping[Any, Any]) -> None:
    """Raise :class:`FglauditError` if a number in ``value``, or in a list of them, is beyond :data:`REAL`, a whole one
    beyond the limit of the field ``name``; ``what`` says where it stands."""
    most = int(metadata.get("most", SIZES.get(name, MOST)))
    for number in value if isinstance(value, (list, tuple, set, frozenset)) else (value,):
        limit = REAL if isinstance(number, float) else most
        if isinstance(number, int | float) and abs(number) > limit:
            raise FglauditError(f"{what} may be at most {limit}; got {shown(number)}; lower it")
