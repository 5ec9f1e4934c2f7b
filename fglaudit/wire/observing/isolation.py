"""What a foreign session keeps where copies of it do not take it along, or says itself of how it is copied.

Copies of a session are asked again (:mod:`fglaudit.wire.observing.call_replay`), which shows something only where a
copy neither knows that it is one nor shares a memory with the session. So classes that have a say in how they are
copied are not believed, nor are sessions that write, while they are called, into their modules, their classes, or
what their functions hold, in whatever that lies. What is kept farther away (files, other modules, the system's clock)
is not seen.
"""

from __future__ import annotations

import copyreg
import gc
import pickle
import sys
import zlib
from collections.abc import Mapping, Set
from contextvars import ContextVar
from functools import _lru_cache_wrapper
from logging import Logger
from types import BuiltinFunctionType, FunctionType, GeneratorType, GenericAlias, ModuleType
from typing import Any
from weakref import ref

import numpy as np
import torch

from fglaudit.wire.observing.held_objects import MOST, PLAIN, known_class, known_code, objects, slots

_COPYING = (
    "__deepcopy__", "__copy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getattribute__",
    "__new__", "__getnewargs__", "__getnewargs_ex__",
)  # fmt: skip
"""What ``copy.deepcopy`` asks a class, or calls of it."""
_UNCHANGING = (tuple, frozenset, range, slice, property, ref, FunctionType, BuiltinFunctionType, GenericAlias)
_MOSTLY = {str, int, bool, type(None)}
_INTERPRETERS = {"__builtins__", "__loader__", "__spec__", "__slotnames__", "__warningregistry__", "_abc_impl"}
"""What Python itself writes into modules and classes."""

_MOST_BYTES = 2**22
"""Of an array, up to which its numbers are looked at, and not just whether it is the same one."""


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


def outside_state(session: object) -> object:
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
    return [_everybodys(), *(_print(part, seen, 0) for part in held)]


def _everybodys() -> tuple[object, ...]:
    """Return the states of the generators that a whole process has in common; Python's own moves where types are
    checked at random (beartype)."""
    numpys: Any = np.random.get_state()
    return numpys[1].tobytes(), numpys[2], torch.get_rng_state().numpy().tobytes()


def _print(held: Any, seen: dict[int, int], depth: int) -> object:
    """Return values by value, and all else by what it is. A run asks this of a module's hundred names after every call
    of a defense, so what most of them hold comes first, by its very type."""
    kind = type(held)
    if kind in _MOSTLY:
        return held
    if isinstance(held, PLAIN):
        return held if held == held else "nan"
    if id(held) in seen or len(seen) > MOST or depth > 8:
        return id(held)
    seen[id(held)] = depth
    if kind is type or kind is ModuleType:
        return id(held)
    deeper = depth + 1
    if kind is FunctionType:
        return _print_function(held, seen, deeper)
    if isinstance(held, torch.Tensor):
        return id(held), held._version, _sum(held)
    if isinstance(held, torch.Generator):
        return held.get_state().numpy().tobytes()
    if kind is dict or isinstance(held, Mapping):  # asking an abstract class takes longer
        parts = [(k, v) for k, v in list(held.items()) if not (isinstance(k, str) and k in _INTERPRETERS)]
        return [(k if type(k) is str else _print(k, seen, deeper), _print(v, seen, deeper)) for k, v in parts]
    if isinstance(held, list | tuple | bytearray):
        return [_print(part, seen, deeper) for part in list(held)]
    if isinstance(held, Set):
        return id(held), sorted(repr(_print(part, seen, deeper)) for part in list(held))
    return _print_object(held, seen, deeper)


def _print_function(held: FunctionType, seen: dict[int, int], depth: int) -> object:
    """Return what a function is, and what it holds: cells of its closure, defaults, attributes."""
    if known_code(held, FunctionType):
        return id(held)
    cells = [cell.cell_contents for cell in held.__closure__ if filled(cell)] if held.__closure__ else ()
    own = [part for part in (held.__defaults__, held.__kwdefaults__, held.__dict__) if part]
    return [id(held), *(_print(part, seen, depth) for part in (*cells, *own))]


def _print_object(held: Any, seen: dict[int, int], depth: int) -> object:
    """Return what an object is, and what it holds wherever it keeps it."""
    if isinstance(held, staticmethod | classmethod):
        return _print(held.__func__, seen, depth)
    if isinstance(held, property):
        return [_print(part, seen, depth) for part in (held.fget, held.fset)]
    if isinstance(held, type | ModuleType):
        return id(held)
    within: Any = getattr(held, "__dict__", None)
    if type(held).__module__ == "_thread":  # whose classes have no name there
        return id(held), repr(held), _print(within, seen, depth)
    if not known_class(type(held)):
        return id(held), _print(within, seen, depth)
    if isinstance(held, Logger):  # which keeps what it was asked for, of the whole process
        return id(held), held.level, held.disabled, len(held.handlers), len(within or ())
    others = (within, *_state(held), *gc.get_referents(held))
    return id(held), [_print(part, seen, depth) for part in others if part is not held]


def _sum(held: torch.Tensor) -> int | None:
    """Return a checksum of numbers that may be written without a tensor's knowing; None where there are too many, or
    they do not lie in memory."""
    if held.layout is not torch.strided or held.is_meta or held.nbytes > _MOST_BYTES:
        return None
    return zlib.crc32(held.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _state(held: Any) -> tuple[object, ...]:
    """Return what an object of a library keeps neither in a dictionary nor where the garbage collector looks."""
    kind = type(held)
    if kind.__module__.partition(".")[0] in ("torch", "fglaudit"):
        return ()
    if isinstance(held, ContextVar):
        return (held.get(None),)
    if isinstance(held, GeneratorType):
        return (held.gi_frame.f_lasti if held.gi_frame is not None else None,)
    if isinstance(held, memoryview | np.ndarray):
        return (zlib.crc32(held.tobytes()) if held.nbytes <= _MOST_BYTES else None,)
    try:
        return (pickle.dumps(held),)
    except Exception:  # whatever lies in it, which is looked at by itself
        return ()


def filled(cell: Any) -> bool:
    """Whether a cell of a closure holds a value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def has_slots(session: object) -> bool:
    """Whether ``session`` holds anything outside of its dictionary."""
    return any(slots(base) for base in type(session).__mro__)


def shared(session: object, copied: object) -> str | None:
    """Return the name of a class of which ``session`` and a copy of it hold one thing together that can change, such as
    a list on whose method both have their hands; None if there is none."""
    there = {id(held) for held in objects(copied, _copied_by_us)}
    for held in objects(session, _copied_by_us):
        if id(held) in there and not isinstance(held, _UNCHANGING) and not _copied_by_us(held):
            return type(held).__qualname__
    return None


def _copied_by_us(held: object) -> bool:
    """Whether a class of this package or of a library says itself how it is copied, as enums and keys of schemes do."""
    says = hasattr(type(held), "__deepcopy__") and known_class(type(held))
    return says and not isinstance(held, torch.Tensor | _lru_cache_wrapper)
