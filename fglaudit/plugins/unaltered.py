"""Does a plugin replace what it is audited with? Functions of this package, of torch, and those that copy and look, are
compared before and after a plugin's file is imported and before and after it is trained.

A plugin runs in the auditor's process, and one that is bent on it can go deeper than this looks: code of strangers is
believed no further than it was read.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from types import FunctionType, ModuleType
from typing import Any

from fglaudit.errors import FglauditError

_ALSO = ("torch", "torch.linalg", "torch.nn.functional", "torch._tensor", "copy", "builtins", "sys", "random", "math",
         "hashlib", "inspect", "gc")  # fmt: skip
_CODE = (FunctionType, staticmethod, classmethod, property)


def refuse_altered(before: dict[str, object], files: Collection[str]) -> None:
    """Raise :class:`FglauditError` where plugins of ``files`` replaced what is in ``before``, see :func:`altered`."""
    if name := altered(before, files):
        raise FglauditError(
            f"a plugin leaves alone what it is audited with; {name} is another one since {' or '.join(sorted(files))}"
            " ran; nothing that this process says can be believed: take that out of the file and start again"
        )


def functions() -> dict[str, object]:
    """Return what stands for every function and class now, by its full name."""
    found: dict[str, object] = {}
    for name, module in _modules():
        found[name] = id(module)
        for key, held in list(vars(module).items()):
            if callable(held):
                found[f"{name}.{key}"] = _mark(held)
            if isinstance(held, type) and held.__module__ == name:
                found |= {f"{name}.{key}.{k}": _mark(v) for k, v in list(vars(held).items()) if isinstance(v, _CODE)}
    return found


def altered(before: dict[str, object], files: Collection[str] = ()) -> str:
    """Return the full name of something that is another one than ``before``; empty if nothing is.

    Args:
        files: of plugins, whose functions nothing is made of, also where it was imported since.
    """
    now = functions()
    other = next((name for name, mark in before.items() if now.get(name) != mark), "")
    return other or (_planted(frozenset(files)) if files else "")


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        if (name.partition(".")[0] == "fglaudit" or name in _ALSO) and isinstance(module, ModuleType):
            yield name, module


def _planted(files: frozenset[str]) -> str:
    for name, module in _modules():
        for key, held in list(vars(module).items()):
            own = vars(held).values() if isinstance(held, type) and held.__module__ == name else ()
            if any(_file(one) in files for one in (held, *own)):
                return f"{name}.{key}"
    return ""


def _mark(held: Any) -> object:
    held = getattr(held, "__func__", held) if isinstance(held, staticmethod | classmethod) else held
    return (id(held), id(held.__code__)) if isinstance(held, FunctionType) else id(held)


def _file(held: Any) -> str:
    held = getattr(held, "fget", getattr(held, "__func__", held)) if isinstance(held, _CODE[1:]) else held
    return held.__code__.co_filename if isinstance(held, FunctionType) else ""
