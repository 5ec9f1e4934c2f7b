"""Work that several attacks of one cell share is done once per view, and forgotten with the view."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import Tensor

from fglaudit.view import View

P = ParamSpec("P")
T = TypeVar("T")
MOST_BYTES = 2**28
"""A larger result is not kept: it would weigh more than the time it saves."""


def once_per_view(function: Callable[Concatenate[View, P], T]) -> Callable[Concatenate[View, P], T]:
    """Return ``function``, a dataclass of tensors made from a view and a few plain values (a device), with its results
    kept as long as their views live. Whoever gets one must not change it."""
    kept: dict[int, dict[Any, T]] = {}

    @functools.wraps(function)
    def once(view: View, /, *also: P.args, **named: P.kwargs) -> T:
        of_view, key = kept.get(id(view), {}), (also, tuple(sorted(named.items())))
        if key in of_view:
            return of_view[key]
        result = function(view, *also, **named)
        if _bytes(result) <= MOST_BYTES:
            if id(view) not in kept:
                weakref.finalize(view, kept.pop, id(view), None)
            kept.setdefault(id(view), {})[key] = result
        return result

    return once


def _bytes(result: Any) -> int:
    held = [getattr(result, field.name) for field in dataclasses.fields(result)]
    return sum(value.numel() * value.element_size() for value in held if isinstance(value, Tensor))
