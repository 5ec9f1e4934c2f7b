"""What a cell is doing, in words, told to whoever listens: an attack, or an audit, can outlast the training."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """Pass what :func:`tell` is given in this block on to ``listener``."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(doing: str) -> None:
    """Say what begins now, e.g. ``attack subset-sum by client:each``."""
    if (listener := _listener.get()) is not None:
        listener(doing)


class Throttled:
    """Passes on what is done, with ``before`` in front, once every few seconds: most attacks take less."""

    def __init__(self, listener: Callable[[str], None] | None, before: str = "") -> None:
        self.listener, self.before = listener, before
        self._said = time.monotonic()

    def __call__(self, doing: str) -> None:
        now = time.monotonic()
        if self.listener is not None and now - self._said >= SECONDS:
            self._said = now
            self.listener(f"{self.before}{doing}")

    def rounds(self, done: int, rounds: int) -> None:
        """Say that ``done`` of ``rounds`` are trained."""
        self(f"training (round {done} of {rounds})")


SECONDS = 2.0
"""Between two texts of :class:`Throttled`."""
