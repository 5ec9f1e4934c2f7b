"""A view of its own for an attack that was not written here: what one attack writes into it, no other one reads.

Side knowledge is shared by all attacks of an observer, by their controls and by their self-tests. An attack that
overwrites it would spoil theirs, and would be blamed for nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from fglaudit.view import View

T = TypeVar("T")
_SHARED = ("messages", "observer")
"""Messages are read back from their bytes every time; an observer cannot be written to."""


def own_view(view: View) -> View:
    """Return ``view`` with side knowledge and public mappings of its own."""
    parts = {name: _copied(value) for name, value in vars(view).items() if name not in (*_SHARED, "public")}
    public = {name: _copied(getattr(view.public, name)) for name in _mappings(view)}
    return dataclasses.replace(view, public=dataclasses.replace(view.public, **public), **parts)


def changed(before: View, after: View) -> str:
    """Return what of ``after``, once :func:`own_view` of ``before``, is another one; empty if nothing is."""
    for name, value in vars(before).items():
        if name not in (*_SHARED, "public") and not same(value, getattr(after, name)):
            return name
    altered = (n for n in _mappings(before) if not same(getattr(before.public, n), getattr(after.public, n)))
    return next((f"public.{name}" for name in altered), "")


def _mappings(view: View) -> list[str]:
    """Return the fields of public facts that can be written into; its functions and frozen statements are shared."""
    return [name for name, value in vars(view.public).items() if isinstance(value, Mapping)]


def _copied(value: T) -> T:
    """Return ``value`` with tensors and mappings of its own, through tuples and dataclasses."""
    made: Any = value
    if isinstance(value, Tensor):
        made = value.clone()
    elif isinstance(value, tuple):
        made = tuple(map(_copied, value))
    elif isinstance(value, Mapping):
        made = {key: _copied(held) for key, held in value.items()}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = dataclasses.replace(
            value, **{f.name: _copied(getattr(value, f.name)) for f in dataclasses.fields(value)}
        )
    return made  # type: ignore[no-any-return]


def same(one: Any, other: Any) -> bool:
    """Whether two values are made of equal tensors and plain values; NaN equals itself."""
    listed = list(_tensors(one)), list(_tensors(other))
    return len(listed[0]) == len(listed[1]) and all(_equal(a, b) for a, b in zip(*listed, strict=True))


def _equal(one: Any, other: Any) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return bool(one == other)
    alike = one.shape == other.shape and one.dtype == other.dtype
    if not alike or not one.is_floating_point():
        return alike and torch.equal(one, other)
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _tensors(value: Any) -> Iterator[Any]:
    """Yield what ``value`` is made of: tensors and plain values, in order."""
    if isinstance(value, tuple | list):
        for held in value:
            yield from _tensors(held)
    elif isinstance(value, Mapping):
        for key in value:
            yield key
            yield from _tensors(value[key])
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))
    else:
        yield value
