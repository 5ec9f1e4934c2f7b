"""The exception for what a user can fix: the command line prints it without a traceback and exits with code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FglauditError(Exception):
    """A rule was broken by input. The message states the rule, the value got, and the fix."""


def unknown(kind: str, name: str, known: Iterable[str]) -> FglauditError:
    """Return the error for an unknown ``name``: it names the nearest known one and lists all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return FglauditError(f"unknown {kind} {name!r}{hint} (known: {', '.join(names) or 'none'})")
