"""Does a plugin replace what it is audited with? Functions of this package, of torch, and those that copy and look, are
compared before and after a plugin's file is imported and before and after it is trained.

A plugin runs in the auditor's process, and one that is bent on it can go deeper than this looks: code of strangers is
believed no further than it was read.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any, ClassVar

from fglaudit.errors import FglauditError

_ALSO = ("torch", "torch.linalg", "torch.nn.functional", "torch._tensor", "copy", "builtins", "sys", "random", "math",
         "hashlib", "inspect", "gc")  # fmt: skip
_INSTALLED = tuple({sysconfig.get_path(place) for place in ("purelib", "platlib", "stdlib", "platstdlib")})
_WRAPPERS = (staticmethod, classmethod)
Held = tuple[object, object, object]
"""What is called, the function in it where that is a property, and its code where it is a function."""


@dataclass(frozen=True)
class Namespace:
    """What stood in a module, or in a class that it defines.

    Attributes:
        owner: the module or class.
        keys, values: its namespace, in order.
        held: what stands for every function and class in it.
        parts: what can be exchanged within a value, as (how to get it, of what, what it was): the code of a function,
            the function in a method or a property.
        files: that its functions were written in.
        classes: that a module defines, with their full names.
    """

    owner: ModuleType | type
    keys: tuple[str, ...]
    values: tuple[object, ...]
    held: dict[str, Held]
    parts: tuple[tuple[Callable[[Any], object], tuple[object, ...], tuple[object, ...]], ...]
    files: frozenset[str]
    classes: tuple[tuple[str, type], ...]

    @staticmethod
    def of(name: str, owner: ModuleType | type) -> Namespace:
        """Return what stands in ``owner`` now, whose full name is ``name``."""
        space = dict(vars(owner))
        values = tuple(space.values())
        methods = tuple(one for one in values if isinstance(one, _WRAPPERS))
        properties = tuple(one for one in values if isinstance(one, property))
        inner = (*(one.__func__ for one in methods), *(one.fget for one in properties))
        written = tuple(one for one in (*values, *inner) if isinstance(one, FunctionType))
        known = callable if isinstance(owner, ModuleType) else _has_code
        parts = (("__code__", written), ("__func__", methods), ("fget", properties))
        return Namespace(
            owner,
            tuple(space),
            values,
            {key: _plain(one) for key, one in space.items() if known(one)},
            tuple((get := attrgetter(field), of, tuple(map(get, of))) for field, of in parts if of),
            frozenset(one.__code__.co_filename for one in written),
            tuple(
                (f"{name}.{key}", one) for key, one in space.items() if isinstance(one, type) and one.__module__ == name
            ),
        )

    def stands(self) -> bool:
        """Whether it is as it was. Nothing of what is compared is asked: a plugin's object may say that it equals."""
        space = vars(self.owner)
        return (
            len(space) == len(self.keys)
            and _same(space, self.keys)
            and _same(space.values(), self.values)
            and all(_same(map(get, of), was) for get, of, was in self.parts)
        )


Functions = dict[str, Namespace]
"""Modules and classes by their full names."""


class _Last:
    """What was seen last: of what still stands nothing is made anew, which takes a tenth of a second."""

    seen: ClassVar[Functions] = {}


def refuse_altered(before: Functions, files: Collection[str]) -> None:
    """Raise :class:`FglauditError` where plugins of ``files`` replaced what is in ``before``, see :func:`altered`."""
    if name := altered(before, files):
        raise FglauditError(
            f"a plugin leaves alone what it is audited with; {name} is another one since {' or '.join(sorted(files))}"
            " ran; nothing that this process says can be believed: take that out of the file and start again"
        )


def functions() -> Functions:
    """Return what stands for every function and class now."""
    found: Functions = {}
    for name, module in _modules():
        found[name] = _now(name, module)
        found |= {place: _now(place, cls) for place, cls in found[name].classes}
    _Last.seen = found
    return found


def _now(name: str, owner: ModuleType | type) -> Namespace:
    last = _Last.seen.get(name)
    return last if last is not None and last.owner is owner and last.stands() else Namespace.of(name, owner)


def altered(before: Functions, files: Collection[str] = ()) -> str:
    """Return the full name of something that is another one than ``before``; empty if nothing is.

    Libraries patch one another when they are first imported, so that functions of theirs may stand for others.

    Args:
        files: of plugins, whose functions nothing is made of, also where it was imported since.
    """
    now = functions()
    for name, old in before.items():
        new = now.get(name)
        if new is old:
            continue
        if new is None or (isinstance(old.owner, ModuleType) and new.owner is not old.owner):
            return name
        for key, held in old.held.items():
            other = new.held.get(key, (None, None, None))
            if not _same(other, held) and (name.startswith("fglaudit") or not _installed(other[0])):
                return f"{name}.{key}"
    return next((_planted(name, now[name], files) for name in now if not now[name].files.isdisjoint(files)), "")


def _installed(held: object) -> bool:
    """Whether ``held`` is a function of an installed library, also where it wraps another: once they are imported,
    ``torch.package`` has an ``inspect.getfile`` of its own, and ``torch._dynamo`` wraps ``torch.manual_seed``."""
    if not isinstance(held, FunctionType):
        return False
    home, path = sys.modules.get(str(held.__globals__.get("__name__"))), held.__code__.co_filename
    if home is None or vars(home) is not held.__globals__ or path != getattr(home, "__file__", None):
        return False
    inner = [cell.cell_contents for cell in held.__closure__ or ()]
    return path.startswith(_INSTALLED) and all(_installed(one) for one in inner if isinstance(one, FunctionType))


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        ours = name.startswith("fglaudit") and name.partition(".")[0] == "fglaudit"
        if (ours or name in _ALSO) and isinstance(module, ModuleType):
            yield name, module


def _planted(name: str, space: Namespace, files: Collection[str]) -> str:
    """Return the full name of what was written in one of ``files``."""
    for key, held in zip(space.keys, space.values, strict=True):
        inner = _within(held)
        if isinstance(inner, FunctionType) and inner.__code__.co_filename in files:
            return f"{name}.{key}"
    return name


def _has_code(held: object) -> bool:
    return isinstance(held, FunctionType | property | staticmethod | classmethod)


def _plain(held: Any) -> Held:
    inner = _within(held)
    return inner if isinstance(held, _WRAPPERS) else held, inner, getattr(inner, "__code__", None)


def _within(held: Any) -> Any:
    """Return the function in a method or a property, or ``held`` itself."""
    if isinstance(held, property):
        return held.fget
    return held.__func__ if isinstance(held, _WRAPPERS) else held


def _same(now: Iterable[object], was: tuple[object, ...]) -> bool:
    """Whether ``now``, of as many, is ``was``, one by one."""
    return all(map(is_, now, was))
