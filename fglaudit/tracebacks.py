"""Where in whose file something failed: a place for messages, and whole tracebacks for whoever collects them."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

_OURS = str(Path(__file__).parent)
_FOREIGN = ("site-packages", "dist-packages")
_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """Collect what :func:`keep` is given in this block, as text."""
    texts: list[str] = []
    token = _collected.set(texts)
    try:
        yield texts
    finally:
        _collected.reset(token)


def keep(error: BaseException, doing: str) -> None:
    """Keep the traceback of ``error`` for whoever collects; ``doing`` says in words what failed."""
    if (texts := _collected.get()) is not None:
        texts.append(f"{doing}\n{''.join(traceback.format_exception(error))}")


def kept(error: BaseException, doing: str) -> str:
    """Keep the traceback as :func:`keep` does; return what was raised, and where, for a message."""
    keep(error, doing)
    return f"{type(error).__name__}: {error}{place(error)}"


def place(error: BaseException) -> str:
    """Return `` (my_defense.py line 12)``: the innermost line of a user's file, else of ours; empty without one, and of
    text that is no Python, whose error names the line itself."""
    if isinstance(error, SyntaxError):
        return ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    ours = [f for f in frames if f.filename.startswith(_OURS)]
    theirs = [
        f
        for f in frames
        if f not in ours and not any(part in f.filename for part in _FOREIGN) and not _standard(f.filename)
    ]
    chosen = theirs or ours
    return f" ({Path(chosen[-1].filename).name} line {chosen[-1].lineno})" if chosen else ""


def _standard(file: str) -> bool:
    return file.startswith(str(Path(sys.base_prefix) / "lib"))
