"""What an object holds, wherever it lies, and which of it was written here, in a library, or by somebody else."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterator
from types import FunctionType, ModuleType
from typing import Any
from weakref import ref

import numpy as np
import torch

KNOWN = {"torch", "numpy", "fglaudit", *sys.stdlib_module_names} - {"__main__"}
"""Packages whose classes and functions do what they are known to do."""
MOST = 20_000
"""Objects that are looked at."""
PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
_HEAP = 1 << 9
"""Flag of types that a program made: those of the interpreter are not."""


def objects(start: object, ends: Callable[[object], bool] = lambda held: False) -> Iterator[object]:
    """Yield ``start`` and the objects that it holds, in whatever they lie: what the garbage collector would follow, but
    for classes, modules and functions, which copies have in common; and what it does not know of."""
    waiting: list[object] = [start]
    seen: set[int] = set()
    while waiting and len(seen) < MOST:
        held = waiting.pop()
        if isinstance(held, (*PLAIN, type, ModuleType)) or id(held) in seen:
            continue
        seen.add(id(held))
        yield held
        if isinstance(held, FunctionType) or ends(held):
            continue
        waiting += gc.get_referents(held)
        waiting += _beside(held)


def _beside(held: Any) -> list[object]:
    """Return what ``held`` holds and the garbage collector need not know of."""
    if isinstance(held, ref):
        return [held()]
    if isinstance(held, np.ndarray):
        return list(held.flat) if held.dtype.hasobject else []
    found = list(getattr(held, "__dict__", {}).values())
    return found + [getattr(held, name) for base in type(held).__mro__ for name in slots(base) if hasattr(held, name)]


def slots(kind: type) -> tuple[str, ...]:
    """Return the names under which instances hold something outside of their dictionary because of ``kind``."""
    named = vars(kind).get("__slots__", ())
    names = (named,) if isinstance(named, str) else tuple(named)
    found = tuple(n for n in names if n not in ("__dict__", "__weakref__"))
    return () if not found or known_class(kind) else found


def known_class(kind: type, also: Collection[str] = ()) -> bool:
    """Whether ``kind`` is of the standard library, torch, numpy or this package, or of a package in ``also``, and not
    merely says so."""
    if kind.__module__ == "builtins":  # which has no name for some of its own
        return not kind.__flags__ & _HEAP
    package = kind.__module__.partition(".")[0]
    if package not in KNOWN and package not in also:
        return False
    return _named(f"{kind.__module__}.{kind.__qualname__}") is kind


def _named(path: str) -> Any:
    """Return what goes by the name ``path``, or None; parts of compiled modules are no modules of their own."""
    names = path.split(".")
    known = next((n for n in range(len(names), 0, -1) if ".".join(names[:n]) in sys.modules), 0)
    found: Any = sys.modules.get(".".join(names[:known]))
    for name in names[known:]:
        found = getattr(found, name, None)
    return found


def known_code(hook: Any, kind: type) -> bool:
    """Whether ``hook`` of a foreign ``kind`` was written by the standard library: of data classes, enums, named
    tuples."""
    hook = getattr(hook, "__func__", hook)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return True
    if not isinstance(hook, FunctionType):
        return hook is None or type(hook).__module__ == "builtins"
    return known_function(hook)


def known_function(function: FunctionType) -> bool:
    """Whether ``function`` was written in a known package, and not merely says so."""
    module = str(function.__globals__.get("__name__", ""))
    return module.partition(".")[0] in KNOWN and function.__globals__ is vars(sys.modules.get(module, ModuleType("")))
