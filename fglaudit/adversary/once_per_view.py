"""Work that several attacks of one cell share is done once per view, and forgotten with the view."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from fglaudit.view import View

T = TypeVar("T")
MOST_BYTES = 2**28
"""A larger result is not kept: it would weigh more than the time it saves."""


def once_per_view(function: Callable[[View], T]) -> Callable[[View], T]:
    """Return ``function``, a dataclass of tensors made from a view alone, with its results kept as long as their views
    live. Whoever gets one must not change it."""
    kept: dict[int, T] = {}

    @functools.wraps(function)
    def once(view: View) -> T:
        key = id(view)
        if key in kept:
            return kept[key]
        result = function(view)
        if _bytes(result) <= MOST_BYTES:
            kept[key] = result
            weakref.finalize(view, kept.pop, key, None)
        return result

    return once


def _bytes(result: Any) -> int:
    held = [getattr(result, field.name) for field in dataclasses.fields(result)]
    return sum(value.numel() * value.element_size() for value in held if isinstance(value, Tensor))
