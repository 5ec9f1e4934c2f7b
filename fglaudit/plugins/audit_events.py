"""What a plugin's code asks the interpreter for while it is audited: who calls it, and what lies outside of it.

A defense that reads its callers' frames knows which of several calls is the run's own, and behaves in all others; one
that starts a thread or writes a file keeps a memory that no copy of it shares. Python raises audit events for this
(``sys.addaudithook``), whatever name a plugin calls it by. They are noted where a plugin's code asks, directly or
through ``inspect`` and the like, not where a library does so for its own ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

_LOOKS = {
    "sys._getframe", "sys._current_frames", "sys._current_exceptions", "gc.get_objects", "gc.get_referrers",
    "gc.get_referents", "sys.settrace", "sys.setprofile", "sys.monitoring.register_callback", "code.__new__",
}  # fmt: skip
_FRAMES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}
_CODE = {"__code__", "__defaults__", "__kwdefaults__"}
_OUTSIDE = {"_thread.start_new_thread", "os.putenv", "os.fork", "os.system", "os.posix_spawn", "subprocess.Popen",
            "socket.connect", "mmap.__new__"}  # fmt: skip
_TELLS_FRAMES = {"inspect", "traceback"}
"""Modules through which frames are asked for, however deep."""
_NAMES_CLASSES = {"collections", "enum", "typing", "dataclasses", "warnings", "functools", "abc"}
"""Modules that look at their caller to name what they make."""
_STANDARD = sys.stdlib_module_names - {"__main__"}
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


class _Watch:
    """What is noted now; None: nothing."""

    noting: list[str] | None = None
    plugins: frozenset[str] = frozenset()
    hooked = False


@contextlib.contextmanager
def watched(*plugins: object) -> Iterator[list[str]]:
    """Note in the list that is given what plugins' code asks for in this block, in words, each once.

    Args:
        plugins: whose packages are watched although they are installed; files that are not installed always are.
    """
    if not _Watch.hooked:
        sys.addaudithook(_heard)  # for as long as the process lives
        _Watch.hooked = True
    before, noted = (_Watch.noting, _Watch.plugins), list[str]()
    _Watch.noting, _Watch.plugins = noted, frozenset(type(one).__module__.partition(".")[0] for one in plugins)
    try:
        yield noted
    finally:
        _Watch.noting, _Watch.plugins = before
        if before[0] is not None:
            before[0].extend(why for why in noted if why not in before[0])


def _heard(event: str, args: tuple[Any, ...]) -> None:
    noted = _Watch.noting
    if noted is None or (asked := _asked(event, args)) is None:
        return
    by, what = asked
    _Watch.noting = None  # what follows raises events too
    try:
        frame = sys._getframe(1)
        who = by(frame)
        if who is not None and (why := f"{what} in {_named(who)}") not in noted:
            noted.append(why)
    finally:
        _Watch.noting = noted


_Finder = Callable[[FrameType | None], FrameType | None]


def _asked(event: str, args: tuple[Any, ...]) -> tuple[_Finder, str] | None:
    """Return how the frame is found that an event is on behalf of, and in words what it asks for; None where that is
    nobody's business."""
    if event in _LOOKS or event.startswith("ctypes."):
        return _asker, f"looks at who runs it ({event})"
    if event == "object.__getattr__":
        return (_asker, f"looks at who runs it ({args[1]})") if args[1] in _FRAMES else None
    if event == "object.__setattr__":
        return (_writer, f"rewrites a function ({args[1]})") if args[1] in _CODE else None
    if event == "open":
        writes = set(args[1]) & set("wax+") if isinstance(args[1], str) else args[2] & (os.O_WRONLY | os.O_RDWR)
        return (_writer, "writes a file") if writes else None
    return (_writer, f"keeps something outside of itself ({event})") if event in _OUTSIDE else None


def _asker(frame: FrameType | None) -> FrameType | None:
    """Return the frame from outside that asks, itself or through the standard library; None: nobody does."""
    while frame is not None and _module(frame) in _TELLS_FRAMES:
        frame = frame.f_back
    if frame is not None and _module(frame) not in ("", "fglaudit", "torch", "numpy", *_NAMES_CLASSES):
        frame = frame.f_back
    return None if frame is None or _module(frame) else frame


def _writer(frame: FrameType | None) -> FrameType | None:
    """Return the frame from outside on whose behalf a library acts; None: it does so for this package."""
    while frame is not None and (name := _module(frame)):
        if name in ("fglaudit", "importlib"):
            return None
        frame = frame.f_back
    return frame


def _module(frame: FrameType) -> str:
    """Return the package that the code of ``frame`` is of; empty: a plugin's."""
    name = str(frame.f_globals.get("__name__", ""))
    top = name.partition(".")[0]
    if top in ("importlib", "_frozen_importlib", "_frozen_importlib_external"):
        return "importlib"
    module = sys.modules.get(name)
    if top in _Watch.plugins - {"fglaudit"} or not isinstance(module, ModuleType):
        return ""
    if vars(module) is not frame.f_globals:  # it only says so
        return ""
    if top == "fglaudit" or top in _STANDARD:
        return top
    return top if str(getattr(module, "__file__", "")).startswith(_INSTALLED) else ""


def _named(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} (line {frame.f_lineno})"
