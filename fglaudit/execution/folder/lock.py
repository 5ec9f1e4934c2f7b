"""The lock of a folder that one process at a time may write results into."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from fglaudit.errors import FglauditError
from fglaudit.files.own import reason


@contextlib.contextmanager
def folder_lock(directory: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of ``directory``, for which others are waited at most ``seconds``.

    Raises:
        FglauditError: another process holds it, or it cannot be written.
    """
    lock = FileLock(directory / ".lock", timeout=seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise FglauditError(
            f"one run at a time may use a folder; {directory} is in use by another run; wait for it or use another"
            " --out"
        ) from error
    except (OSError, NotImplementedError) as error:
        raise FglauditError(
            f"the output folder must be writable; {directory}: {reason(error)}; make it so, or use another --out"
        ) from error
    try:
        yield
    finally:
        lock.release()
