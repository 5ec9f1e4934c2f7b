"""The exception for what a user can fix: the command line prints it without a traceback and exits with code 2."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ECHO = 120
"""Characters of a value that a message quotes."""
MESSAGE = 2000
"""Characters of a whole message."""


class FglauditError(Exception):
    """A rule was broken by input. The message states the rule, the value got, and the fix.

    Whatever a message quotes, it stays one printable line of at most :data:`MESSAGE` characters: the middle is left
    out, as the rule stands at the beginning and the fix at the end.
    """

    def __str__(self) -> str:
        text = printable(re.sub(r"\s*\n\s*", " ", super().__str__()))
        if len(text) <= MESSAGE:
            return text
        return f"{text[: MESSAGE * 2 // 3]} ... {text[-MESSAGE // 4 :]}"


def printable(text: str) -> str:
    """Return ``text`` with escapes in place of control characters and lone surrogates: nothing of it steers a
    terminal, and it can be encoded."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


class _Echo(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = ECHO
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 12

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to print integers above 4300 digits, and takes quadratic time below.
        return repr(x) if x.bit_length() <= 256 else f"<integer of {x.bit_length()} bits>"


_echo = _Echo()


def shown(value: Any, most: int = ECHO) -> str:
    """Return ``repr(value)`` on one line of at most ``most`` characters, whatever it is: messages quote input."""
    text = printable(_echo.repr(value))
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def with_article(kind: str) -> str:
    """Return ``kind`` with its article."""
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def counted(number: int, noun: str, many: str = "") -> str:
    """Return ``number`` with its ``noun``, in the plural (``many``, or with an s) unless there is one."""
    return f"{number} {noun if number == 1 else many or noun + 's'}"


def duration(seconds: float) -> str:
    """Return seconds as people read them, in two digits: they are no more exact than that."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 99 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 99 else f"{seconds:.0f} s"


def near_key(keys: Iterable[Any], known: str) -> str:
    """Return the one of ``keys`` that is ``known`` with a slip of the pen, or nothing."""
    texts = [key for key in keys if isinstance(key, str) and key != known]
    return next((key for key in texts if difflib.get_close_matches(key[:ECHO].lower(), [known], cutoff=0.6)), "")


def meant(keys: Iterable[Any], *known: str) -> str:
    """Return "; did you mean 'name'?" where one of ``keys`` is nearly one of the ``known``; else nothing."""
    keys = list(keys)
    return next((f"; did you mean {name!r}?" for name in known if near_key(keys, name)), "")


SLIP = 0.75
"""Similarity from which a name counts as another one with a slip of the pen: "cheese" is no "citeseer" (0.57)."""
PART = 4
"""Letters from which a name that is part of another one, or holds it, is taken for it: laplace, clipped-laplace."""


LISTED = 20
"""Known names that a message lists; of more it has a few of the nearest."""
FEW = 5


def unknown(
    kind: str, name: str, known: Iterable[str], elsewhere: str = "", called: Mapping[str, str] | None = None
) -> FglauditError:
    """Return the error for an unknown ``name``: it names the nearest known one, and all of them unless they are many.

    Papers write FedGCN where a suite has fedgcn, and Python my_name where it has my-name: neither counts as a slip.

    Args:
        elsewhere: what prints all known names, where they can be many.
        called: other words for known names, such as those that reports print: who writes them, or nearly, means these.
    """
    names = sorted(known)
    words = called or {}
    near = _nearest(name, names)
    if found := _nearest(name, sorted(words)):
        near = words[found] if not near or _alike(name, found) > _alike(name, near) else near
    hint = f"; did you mean {near!r}?" if near else ""
    listed, more = names, ""
    if len(names) > LISTED:
        listed = difflib.get_close_matches(_plain(name[:ECHO]), names, n=FEW) or names[:FEW]
        more = f" and {len(names) - len(listed)} more" + (f"; all: {elsewhere}" if elsewhere else "")
    return FglauditError(f"unknown {kind} {shown(name)}{hint} (known: {', '.join(listed) or 'none'}{more})")


def require_least(settings: Any, **least: float) -> None:
    """Raise :class:`FglauditError` for the first field of ``settings`` that is not at least its ``least`` value."""
    for field, bound in least.items():
        if not (value := getattr(settings, field)) >= bound:
            owner = getattr(settings, "name", "it")
            raise FglauditError(f"{owner} needs {field} >= {bound:g}; got {value}; raise it")


def require_shares(settings: Any, *fields: str) -> None:
    """Raise :class:`FglauditError` for the first of the ``fields`` that is not in [0, 1)."""
    for field in fields:
        if not 0 <= (value := getattr(settings, field)) < 1:
            raise FglauditError(f"{field} is a share in [0, 1); got {value:g}; use for example 0.5")


def require_known(settings: Any, **known: Iterable[str]) -> None:
    """Raise :class:`FglauditError` for the first field of ``settings`` that is none of its ``known`` words."""
    for field, words in known.items():
        if (value := getattr(settings, field)) not in words:
            raise unknown(field, value, words)


def _nearest(name: str, names: Sequence[str]) -> str:
    """Return the one of ``names`` that ``name`` is with a slip of the pen, in another order (vla, val) or in part; or
    nothing."""
    wanted, plain = _plain(name[:ECHO]), {_plain(each): each for each in reversed(names)}
    if near := difflib.get_close_matches(wanted, plain, n=1, cutoff=SLIP):
        return plain[near[0]]
    if swapped := [each for each in plain if sorted(each) == sorted(wanted)]:
        return plain[swapped[0]]
    parts = (each for each in plain if min(len(each), len(wanted)) >= PART and (wanted in each or each in wanted))
    return plain.get(min(parts, key=len, default=""), "")


def _alike(one: str, other: str) -> float:
    """Return how much of two names is the same, from 0 to 1."""
    return difflib.SequenceMatcher(None, _plain(one[:ECHO]), _plain(other)).ratio()


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
