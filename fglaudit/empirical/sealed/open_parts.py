"""What sealed rows show beside ciphertexts and masked words: ids, counts, sizes, factors, functions, all else.

The server holds the rows as they are, so all of this is its to read. What it cannot read are the words or ciphertexts;
a codec is looked at by :mod:`fglaudit.empirical.sealed.own_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglaudit.he.packed_rows import Bundle, PackedRows
from fglaudit.he.weighted_rows import Row, RowScheme, WeightedRows
from fglaudit.sealing import SealedTensor
from fglaudit.secagg.rows import MaskedRows
from fglaudit.wire.observing.isolation import filled

_HIDDEN: dict[type, tuple[str, ...]] = {
    MaskedRows: ("words", "aggregation"),  # the second counts aggregations, also those of audits
    PackedRows: ("codec",),
    RowScheme: ("codec",),
}
_CIPHERTEXTS = {Bundle: "blocks", Row: "blocks"}
_NO_SLOTS = ("__dict__", "__weakref__")
_DEPTH = 8


def open_parts(value: SealedTensor) -> dict[str, object]:
    """Return what lies open in ``value`` of a scheme of this tool by its place: tensors, plain values, names of
    classes. Of other schemes nobody knows what is a ciphertext: nothing."""
    if type(value.sealed) not in (MaskedRows, PackedRows, WeightedRows):
        return {}
    beside = {name: part for name, part in vars(value).items() if name != "sealed"}
    shape = tuple(value.shape), str(value.dtype)
    return dict([*_walk((shape, beside), "tensor", _DEPTH), *_walk(value.sealed, type(value.sealed).__name__, _DEPTH)])


def same_parts(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether the same lies open in two messages."""
    return one.keys() == other.keys() and all(_same(value, other[place]) for place, value in one.items())


def _walk(thing: Any, place: str, depth: int) -> Iterator[tuple[str, object]]:
    if isinstance(thing, Tensor):
        yield place, thing.detach().cpu()
    elif isinstance(thing, (bool, int, float, str, bytes, type(None))):
        yield place, thing
    elif isinstance(thing, (np.ndarray, np.generic, bytearray, memoryview)):
        yield place, (type(thing).__name__, bytes(np.asarray(thing).tobytes()))
    elif depth and (inside := _of_callable(thing)):
        for name, part in inside.items():
            yield from _walk(part, f"{place}.{name}", depth - 1)
    elif depth and isinstance(thing, Set):
        yield from _walk(sorted(thing, key=repr), place, depth - 1)
    elif depth and isinstance(thing, Mapping):
        yield place, tuple(thing)
        for key, part in thing.items():
            yield from _walk(part, f"{place}[{key}]", depth - 1)
    elif depth and isinstance(thing, (list, tuple)):
        yield place, len(thing)
        for number, part in enumerate(thing):
            yield from _walk(part, f"{place}[{number}]", depth - 1)
    elif depth and (held := _attributes(thing)):
        hidden = _HIDDEN.get(type(thing), ())
        for name, part in held.items():
            if name == _CIPHERTEXTS.get(type(thing)):
                blocks = part if isinstance(part, Mapping) else dict(enumerate(part))
                yield f"{place}.{name}", tuple((number, type(block).__name__) for number, block in blocks.items())
            elif name not in hidden:
                yield from _walk(part, f"{place}.{name}", depth - 1)
    else:
        yield place, type(thing).__name__


def _attributes(thing: Any) -> dict[str, Any]:
    """Return what an object holds, in its ``__dict__`` and in the slots of its classes."""
    if isinstance(thing, type):
        return {}
    slots = [name for kind in type(thing).__mro__ for name in np.atleast_1d(vars(kind).get("__slots__", ())).tolist()]
    held = {name: getattr(thing, name) for name in slots if name not in _NO_SLOTS and hasattr(thing, name)}
    return held | dict(getattr(thing, "__dict__", {}))


def _of_callable(thing: Any) -> dict[str, Any]:
    """Return what a function, a method or a partial call carries with it: a key may lie in each of them."""
    if isinstance(thing, partial):
        return {"func": thing.func, "args": thing.args, "keywords": thing.keywords}
    if isinstance(thing, MethodType):
        return {"self": thing.__self__, "function": thing.__func__}
    if isinstance(thing, CodeType):
        return {"bytes": thing.co_code, "constants": thing.co_consts}
    if not isinstance(thing, FunctionType):
        return {}
    cells = [cell.cell_contents for cell in thing.__closure__ or () if filled(cell)]
    defaults = thing.__defaults__, thing.__kwdefaults__
    return {"code": thing.__code__, "cells": cells, "defaults": defaults, "attributes": vars(thing)}


def _same(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other
