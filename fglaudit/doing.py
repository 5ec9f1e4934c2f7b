"""What a cell is doing, in words, told to whoever listens: an attack, or an audit, can outlast the training."""

from __future__ import annotations

import contextlib
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
