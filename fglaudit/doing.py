"""What a cell is doing, in words, told to whoever listens: an attack, or an audit, can outlast the training."""

from __future__ import annotations

import contextlib
import time
import warnings
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


class Announcer:
    """Passes on what begins, with ``before`` in front, and every few seconds which round is trained. A listener that
    raises is told nothing more: what is measured does not depend on who listens."""

    def __init__(self, listener: Callable[[str], None] | None, before: str = "") -> None:
        self.listener, self.before = listener, before
        self._said = time.monotonic()

    def __call__(self, doing: str) -> None:
        if self.listener is None:
            return
        self._said = time.monotonic()
        try:
            self.listener(f"{self.before}{doing}")
        except Exception as error:
            self.listener = None
            why = f"progress raised {type(error).__name__}: {error}; it is called no more"
            warnings.warn(why, RuntimeWarning, stacklevel=2)

    def rounds(self, done: int, rounds: int) -> None:
        """Say that ``done`` of ``rounds`` are trained, unless something was said just now."""
        if time.monotonic() - self._said >= SECONDS:
            self(f"training (round {done} of {rounds})")


SECONDS = 2.0
"""Between two rounds that :class:`Announcer` names."""
