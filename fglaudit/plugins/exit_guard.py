"""Plugins do not end the process: ``sys.exit(0)`` in one would end a command as if all were well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fglaudit.errors import FglauditError
from fglaudit.tracebacks import place


@contextlib.contextmanager
def no_exit() -> Iterator[None]:
    """Turn a ``SystemExit`` that a plugin's code raises in this block, or in a function decorated with it, into an
    error.

    Raises:
        FglauditError: in its place.
    """
    try:
        yield
    except SystemExit as error:
        raise FglauditError(
            f"a plugin must not end the process; SystemExit({error.code!r}) was raised{place(error)}; raise an error"
            " that says what is wrong"
        ) from error
