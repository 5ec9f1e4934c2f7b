"""Arrays out of the bytes of an ``.npz``, whatever the bytes are.

An ``.npz`` is a zip archive of ``NAME.npy`` entries, each a header (type, shape) and the raw values. Zip directory and
header both state sizes before any value is read, and a few kilobytes can state terabytes. Here every stated size is
compared with the others and with a limit first, and memory is taken afterwards. Nothing is ever unpickled. At damaged
bytes zipfile, zlib and NumPy raise more than a dozen kinds of errors; they all become one message.
"""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fglaudit.errors import FglauditError, shown

Array = NDArray[np.generic]
HEADER_BYTES = 10_000
BOMB_BYTES, BOMB_RATIO = 2**28, 250
"""Entries that claim more than so many bytes, and so many times their size in the archive, are taken for bombs: sparse
binary features compress about 100-fold."""
ENTRIES = 1_000


class _UnsoundError(Exception):
    """What is wrong with an archive."""


@dataclass(frozen=True)
class _Claim:
    """What an entry says about itself."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


def memory_limit() -> int:
    """Return how many bytes the arrays of one file may take: half of the machine's memory."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 2**32


def read_arrays(data: bytes, names: Sequence[str], source: str) -> tuple[dict[str, Array], list[str]]:
    """Return the arrays called ``names`` that the archive ``data`` holds, and the names of all its arrays.

    Args:
        source: the file, for messages.

    Raises:
        FglauditError: no sound archive of plain arrays, or its sizes are beyond the limit.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of doubled names and old formats; what matters is checked
            return _read(data, names)
    except _UnsoundError as error:
        reason = str(error)
    except MemoryError:
        reason = "its arrays do not fit into memory"
    except Exception as error:  # BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError, ...
        reason = f"{type(error).__name__}: {error}"
    raise FglauditError(
        f"a graph is read from a sound .npz without pickled objects; {source}: {reason}; "
        "write it with numpy.savez(path, x=..., edge_index=..., y=...)"
    )


def _read(data: bytes, names: Sequence[str]) -> tuple[dict[str, Array], list[str]]:
    if data.startswith(b"\x93NUMPY"):
        raise _UnsoundError("it is a single .npy array")
    if not data.startswith(b"PK\x03\x04"):  # zipfile looks for an archive at the end of any file
        raise _UnsoundError("it is no zip archive")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        if len(entries) > ENTRIES:
            raise _UnsoundError(f"it has {len(entries)} entries, more than {ENTRIES}")
        stored = [entry.filename.removesuffix(".npy") for entry in entries]
        claims = {}
        for name in names:
            found = [entry for entry, called in zip(entries, stored, strict=True) if called == name]
            if len(found) > 1:
                raise _UnsoundError(f"it holds {name} {len(found)} times")
            if found:
                claims[name] = _claim(archive, found[0], name)
        # Features become float32 and whole numbers int64 afterwards.
        wanted = sum(math.prod(claim.shape) * (claim.dtype.itemsize + 8) for claim in claims.values())
        if wanted > memory_limit():
            raise _UnsoundError(
                f"its arrays claim {wanted} bytes of memory, more than the {memory_limit()} allowed here"
            )
        return {name: _array(archive, claim) for name, claim in claims.items()}, sorted(stored)


def _claim(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> _Claim:
    """Return type and shape of an entry after comparing all sizes that are stated; reads the header alone."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & 1:
        raise _UnsoundError(f"{name} is encrypted or compressed in another way than NumPy does")
    if entry.file_size > BOMB_BYTES and entry.file_size > BOMB_RATIO * entry.compress_size:
        raise _UnsoundError(
            f"{name} claims {entry.file_size} bytes out of {entry.compress_size}, as a zip bomb does; if it is"
            " genuine, save it with numpy.savez instead of numpy.savez_compressed"
        )
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=HEADER_BYTES)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(file, max_header_size=HEADER_BYTES)
        else:
            raise _UnsoundError(f"{name} has version {version} of the array format; 1.0 and 2.0 are read")
        header = file.tell()
    if dtype.hasobject:
        raise _UnsoundError(f"{name} holds pickled objects")
    if any(type(size) is not int or size < 0 for size in shape) or len(shape) > 8:
        raise _UnsoundError(f"{name} has shape {shown(shape)}")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != entry.file_size - header:
        raise _UnsoundError(
            f"{name} claims shape {shown(shape)}, {claimed} bytes, and has {entry.file_size - header} bytes of values"
        )
    return _Claim(entry, shape, dtype)


def _array(archive: zipfile.ZipFile, claim: _Claim) -> Array:
    with archive.open(claim.info) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False, max_header_size=HEADER_BYTES)
        if file.read(1):  # also makes zipfile compare the checksum of the whole entry
            raise _UnsoundError("values go on behind the end of an array")
    return array.view(np.uint8) != 0 if array.dtype.kind == "b" else array  # a flag's byte may hold more than 0 and 1
