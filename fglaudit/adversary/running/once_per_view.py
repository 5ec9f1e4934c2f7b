"""Work that several attacks of one cell share is done once per view, and forgotten with the view."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import Tensor

from fglaudit.view import NotedMessages, View

P = ParamSpec("P")
T = TypeVar("T")
MOST_BYTES = 2**28
"""A larger result is not kept: it would weigh more than the time it saves."""
MOST_BYTES_IN_ALL = 2**30
"""What is kept of all views together; beyond it nothing more is."""


@dataclasses.dataclass
class _Shelf:
    """What was made of one view: by function and arguments the result, and the fields of messages read for it."""

    results: dict[Any, tuple[Any, frozenset[tuple[str, str]]]] = dataclasses.field(default_factory=dict)
    size: int = 0


_shelves: dict[int, _Shelf] = {}


def once_per_view(function: Callable[Concatenate[View, P], T]) -> Callable[Concatenate[View, P], T]:
    """Return ``function``, of a view and a few plain values (a device), with its results kept as long as their views
    live, or until :func:`forget`. Whoever gets one must not change it.

    A view that notes what is read of its messages shares the results of the view it was made from; whoever gets one has
    read what it was made of.
    """

    @functools.wraps(function)
    def once(view: View, /, *also: P.args, **named: P.kwargs) -> T:
        origin, key = view.origin(), (function, also, tuple(sorted(named.items())))
        shelf = _shelves.get(id(origin))
        found = None if shelf is None else shelf.results.get(key)
        if found is None:
            read: set[tuple[str, str]] = set()
            found = function(origin.noted(read), *also, **named), frozenset(read)
            _keep(origin, key, found)
        if isinstance(view.messages, NotedMessages):
            view.messages.log.update(found[1])
        result: T = found[0]
        return result

    return once


def forget(view: View) -> None:
    """Drop what is kept of ``view``."""
    _shelves.pop(id(view), None)


def _keep(view: View, key: Any, found: tuple[Any, frozenset[tuple[str, str]]]) -> None:
    size = _bytes(found[0])
    if size > MOST_BYTES or size + sum(shelf.size for shelf in _shelves.values()) > MOST_BYTES_IN_ALL:
        return
    if id(view) not in _shelves:
        weakref.finalize(view, _shelves.pop, id(view), None)
    shelf = _shelves.setdefault(id(view), _Shelf())
    shelf.results[key] = found
    shelf.size += size


def _bytes(result: Any) -> int:
    """Return the size of the tensors in a tensor, a dataclass or a tuple of these."""
    if isinstance(result, Tensor):
        return result.numel() * result.element_size()
    if isinstance(result, tuple):
        return sum(map(_bytes, result))
    if dataclasses.is_dataclass(result):
        return sum(_bytes(getattr(result, field.name)) for field in dataclasses.fields(result))
    return 0
