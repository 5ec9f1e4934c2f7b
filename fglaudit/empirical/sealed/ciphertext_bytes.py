"""What a sealed message is made of, as bytes: ciphertexts, or words under masks, one unit each.

Of the schemes of this tool every unit is known. Of others, tensors, arrays and bytes are found in what the rows hold;
which of them carry the message, and which are ids and sizes, is found out by sealing another message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from fglaudit.he.keys import to_bytes
from fglaudit.he.packed_rows import PackedRows
from fglaudit.he.weighted_rows import WeightedRows
from fglaudit.payloads import MessageBatch
from fglaudit.sealing import SealedRows
from fglaudit.secagg.rows import MaskedRows

LEAST = 16
"""Bytes of a unit below which two may be equal by chance."""
MOST = 48
"""Units taken of one message."""
_DEPTH = 4


def units(batch: MessageBatch) -> dict[str, bytes]:
    """Return the units of the sealed fields of ``batch`` by the place where they lie."""
    found: dict[str, bytes] = {}
    for name, value in batch.payload.sealed_fields().items():
        for number, (place, blob) in enumerate(_of(value.sealed)):
            if number == MOST:
                break
            found[f"{name}.{place}"] = blob
    return found


def is_known(rows: SealedRows) -> bool:
    """Whether the rows are of a scheme of this tool, and of no subclass of one."""
    return type(rows) in (PackedRows, WeightedRows, MaskedRows)


def saved(thing: Any) -> bytes:
    """Return the bytes of a ciphertext: an object of SEAL, or bytes already."""
    return thing if isinstance(thing, bytes) else to_bytes(thing)


def _of(rows: SealedRows) -> Iterator[tuple[str, bytes]]:
    if type(rows) is PackedRows:
        for at, bundle in enumerate(rows.bundles):
            yield from ((f"bundle {at}, block {number}", saved(block)) for number, block in bundle.blocks.items())
    elif type(rows) is WeightedRows:
        for at, row in enumerate(rows.rows):
            blocks = enumerate(row.blocks)
            yield from ((f"row {at}, block {number}", saved(b)) for number, b in blocks if b is not None)
    elif type(rows) is MaskedRows:
        yield from _rows_of("words", rows.words)
    else:
        yield from _walk(rows, "", rows.shape[0], _DEPTH)


def _walk(thing: Any, place: str, count: int, depth: int) -> Iterator[tuple[str, bytes]]:
    """Yield bytes, tensors and arrays in an object, row by row where they have as many rows as the message."""
    if isinstance(thing, bytes | bytearray):
        yield place, bytes(thing)
    elif isinstance(thing, Tensor | np.ndarray):
        array = thing.detach().cpu() if isinstance(thing, Tensor) else thing
        if array.ndim and array.shape[0] == count:
            yield from _rows_of(place, array)
        else:
            yield place, np.ascontiguousarray(array).tobytes()
    elif depth and isinstance(thing, list | tuple):
        for number, part in enumerate(thing[:MOST]):
            yield from _walk(part, f"{place}[{number}]", count, depth - 1)
    elif depth and isinstance(thing, dict):
        for key, part in list(thing.items())[:MOST]:
            yield from _walk(part, f"{place}[{key}]", count, depth - 1)
    elif depth and hasattr(thing, "__dict__") and not isinstance(thing, type):
        for name, part in vars(thing).items():
            yield from _walk(part, f"{place}.{name}", count, depth - 1)


def _rows_of(place: str, array: Any) -> Iterator[tuple[str, bytes]]:
    rows = np.ascontiguousarray(array)
    for number in range(min(MOST, rows.shape[0])):
        yield f"{place}[{number}]", rows[number].tobytes()
