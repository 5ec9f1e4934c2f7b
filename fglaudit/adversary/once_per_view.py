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


def once_per_view(function: Callable[Concatenate[View, P], T]) -> Callable[Concatenate[View, P], T]:
    """Return ``function``, a dataclass of tensors made from a view and a few plain values (a device), with its results
    kept as long as their views live. Whoever gets one must not change it.

    A view that notes what is read of its messages shares the results of the view it was made from; whoever gets one has
    read what it was made of.
    """
    kept: dict[int, dict[Any, tuple[T, frozenset[tuple[str, str]]]]] = {}

    @functools.wraps(function)
    def once(view: View, /, *also: P.args, **named: P.kwargs) -> T:
        origin, key = view.origin(), (also, tuple(sorted(named.items())))
        found = kept.get(id(origin), {}).get(key)
        if found is None:
            read: set[tuple[str, str]] = set()
            found = function(origin.noted(read), *also, **named), frozenset(read)
            if _bytes(found[0]) <= MOST_BYTES:
                if id(origin) not in kept:
                    weakref.finalize(origin, kept.pop, id(origin), None)
                kept.setdefault(id(origin), {})[key] = found
        if isinstance(view.messages, NotedMessages):
            view.messages.log.update(found[1])
        return found[0]

    return once


def _bytes(result: Any) -> int:
    held = [getattr(result, field.name) for field in dataclasses.fields(result)]
    return sum(value.numel() * value.element_size() for value in held if isinstance(value, Tensor))
