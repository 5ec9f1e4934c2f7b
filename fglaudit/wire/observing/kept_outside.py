"""What a foreign session keeps where copies of it do not take it along, or says itself of how it is copied.

Copies of a session are asked again (:mod:`fglaudit.wire.observing.asked_again`), which shows something only where a
copy neither knows that it is one nor shares a memory with the session. So classes that have a say in how they are
copied are not believed, nor are sessions that write, while they are called, into their modules, their classes, or
what their functions hold. What is kept farther away (files, other modules, the system's clock) is not seen.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Mapping, Set
from types import FunctionType, ModuleType
from typing import Any

import torch

from fglaudit.wire.observing.held_objects import MOST, PLAIN, known_class, known_code, objects, slots

_COPYING = (
    "__deepcopy__", "__copy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getattribute__",
    "__new__", "__getnewargs__", "__getnewargs_ex__",
)  # fmt: skip
"""What ``copy.deepcopy`` asks a class, or calls of it."""
_INTERPRETERS = {"__builtins__", "__loader__", "__spec__", "__slotnames__", "__warningregistry__"}
"""What Python itself writes into modules and classes."""


def copies_itself(session: object) -> str | None:
    """Return the name of a class in ``session`` that has a say in how it is copied, or None."""
    for held in objects(session):
        kind = type(held)
        if kind in copyreg.dispatch_table and not known_class(kind):
            return kind.__qualname__
        for base in kind.__mro__:
            if known_class(base):
                continue
            if any(name in vars(base) and not known_code(vars(base)[name], base) for name in _COPYING):
                return base.__qualname__
        if any(name in getattr(held, "__dict__", ()) for name in _COPYING):
            return kind.__qualname__
        if hasattr(held, "__deepcopy__") and not hasattr(kind, "__deepcopy__"):  # by __getattr__
            return kind.__qualname__
    return None


def kept_outside(session: object) -> object:
    """Return something that compares unequal once modules, classes or functions of ``session`` hold anything else."""
    parts = list(objects(session))
    kinds = {base for part in parts for base in type(part).__mro__ if not known_class(base)}
    modules = {kind.__module__: sys.modules.get(kind.__module__) for kind in kinds}
    held: list[Any] = [vars(kind) for kind in sorted(kinds, key=lambda k: (k.__module__, k.__qualname__))]
    for name in sorted(modules):
        if isinstance(module := modules[name], ModuleType):
            held.append(vars(module))
    held += [part for part in parts if isinstance(part, FunctionType)]
    seen = {id(session): 0}  # which a module may hold, and which is another one after every call
    return [_print(part, seen, 0) for part in held]


def _print(held: Any, seen: dict[int, int], depth: int) -> object:
    """Return values by value, and all else by what it is."""
    if isinstance(held, PLAIN):
        return held if held == held else "nan"
    if id(held) in seen or len(seen) > MOST or depth > 8:
        return id(held)
    seen[id(held)] = depth
    if isinstance(held, FunctionType):  # most of what a module holds
        if known_code(held, type(held)):
            return id(held)
        cells = [cell.cell_contents for cell in held.__closure__ or () if _filled(cell)]
        own = [part for part in (held.__defaults__, held.__kwdefaults__, vars(held)) if part]
        return [id(held), *(_print(part, seen, depth + 1) for part in (*cells, *own))]
    if isinstance(held, torch.Tensor):
        return id(held), held._version
    if isinstance(held, torch.Generator):
        return held.get_state().numpy().tobytes()
    if type(held) is dict or isinstance(held, Mapping):  # asking an abstract class takes longer
        parts = [(k, v) for k, v in list(held.items()) if not (isinstance(k, str) and k in _INTERPRETERS)]
        return [(_print(k, seen, depth + 1), _print(v, seen, depth + 1)) for k, v in parts]
    if isinstance(held, list | tuple | bytearray):
        return [_print(part, seen, depth + 1) for part in list(held)]
    if isinstance(held, Set):
        return id(held), len(held)
    if isinstance(held, staticmethod | classmethod):
        return _print(held.__func__, seen, depth + 1)
    if isinstance(held, property):
        return [_print(part, seen, depth + 1) for part in (held.fget, held.fset)]
    if isinstance(held, type | ModuleType) or known_class(type(held)):
        return id(held), repr(held) if type(held).__module__ in ("itertools", "collections") else ""
    return id(held), _print(getattr(held, "__dict__", None), seen, depth + 1)


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def has_slots(session: object) -> bool:
    """Whether ``session`` holds anything outside of its dictionary."""
    return any(slots(base) for base in type(session).__mro__)
