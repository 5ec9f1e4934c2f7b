"""Signals that end a command: Ctrl-C, SIGTERM (batch systems) and SIGHUP (a closed terminal) all do the same.

While modules are imported nothing has been written yet and an exception out of an import can end in any state, so the
process stops at once. While a command works they raise ``KeyboardInterrupt``, once: clean-up that has begun is not
interrupted by a second signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

EXIT = 130
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def end_at_once() -> None:
    """From now on a signal ends this process without any clean-up: for imports."""
    _handle(_stop)


def interrupt() -> None:
    """From now on the first signal raises ``KeyboardInterrupt`` in the main thread."""
    _handle(_raise)


def _handle(handler: object) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and background jobs ask
                signal.signal(number, handler)  # type: ignore[arg-type]


def _stop(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"\nstopped\n")
    os._exit(EXIT)


def _raise(number: int, frame: FrameType | None) -> None:
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Start child processes in here: Ctrl-C and SIGHUP reach a whole process group, and are the parent's to handle.
    No signal ends the parent between a child's start and the data that the child waits for.

    The children inherit the block and lift it in :func:`leave_to_parent`.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started within the block by the first child, it would lift it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """In a child process: ignore the signals that its parent handles; SIGTERM ends it again."""
    for number in _SHARED:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


_SHARED = tuple(number for number in SIGNALS if number != signal.SIGTERM)
