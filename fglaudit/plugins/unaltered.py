"""Does a plugin replace what it is audited with? Functions of this package, of torch, and those that copy and look, are
compared before and after a plugin's file is imported and before and after it is trained.

A plugin runs in the auditor's process, and one that is bent on it can go deeper than this looks: code of strangers is
believed no further than it was read.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Collection, Iterator
from types import FunctionType, ModuleType
from typing import Any

from fglaudit.errors import FglauditError

_ALSO = ("torch", "torch.linalg", "torch.nn.functional", "torch._tensor", "copy", "builtins", "sys", "random", "math",
         "hashlib", "inspect", "gc")  # fmt: skip
_INSTALLED = tuple({sysconfig.get_path(place) for place in ("purelib", "platlib", "stdlib", "platstdlib")})
_CODE = (FunctionType, staticmethod, classmethod, property)
Functions = dict[str, tuple[object, object]]
"""What stands for a full name, and the code of it, where that is a function."""


def refuse_altered(before: Functions, files: Collection[str]) -> None:
    """Raise :class:`FglauditError` where plugins of ``files`` replaced what is in ``before``, see :func:`altered`."""
    if name := altered(before, files):
        raise FglauditError(
            f"a plugin leaves alone what it is audited with; {name} is another one since {' or '.join(sorted(files))}"
            " ran; nothing that this process says can be believed: take that out of the file and start again"
        )


def functions() -> Functions:
    """Return what stands for every function and class now, and its code, by its full name."""
    found: Functions = {}
    for name, module in _modules():
        found[name] = module, None
        for key, held in list(vars(module).items()):
            if callable(held):
                found[f"{name}.{key}"] = _plain(held)
            if isinstance(held, type) and held.__module__ == name:
                found |= {f"{name}.{key}.{k}": _plain(v) for k, v in list(vars(held).items()) if isinstance(v, _CODE)}
    return found


def altered(before: Functions, files: Collection[str] = ()) -> str:
    """Return the full name of something that is another one than ``before``; empty if nothing is.

    Libraries patch one another when they are first imported, so that functions of theirs may stand for others.

    Args:
        files: of plugins, whose functions nothing is made of, also where it was imported since.
    """
    now = functions()
    for name, (held, code) in before.items():
        new, new_code = now.get(name, (None, None))
        if (new is not held or new_code is not code) and (name.startswith("fglaudit") or not _installed(new)):
            return name
    return _planted(frozenset(files)) if files else ""


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
        if (name.partition(".")[0] == "fglaudit" or name in _ALSO) and isinstance(module, ModuleType):
            yield name, module


def _planted(files: frozenset[str]) -> str:
    for name, module in _modules():
        for key, held in list(vars(module).items()):
            own = vars(held).values() if isinstance(held, type) and held.__module__ == name else ()
            if any(_file(one) in files for one in (held, *own)):
                return f"{name}.{key}"
    return ""


def _plain(held: Any) -> tuple[object, object]:
    held = getattr(held, "__func__", held) if isinstance(held, staticmethod | classmethod) else held
    return held, held.__code__ if isinstance(held, FunctionType) else None


def _file(held: Any) -> str:
    held = getattr(held, "fget", getattr(held, "__func__", held)) if isinstance(held, _CODE[1:]) else held
    return held.__code__.co_filename if isinstance(held, FunctionType) else ""
