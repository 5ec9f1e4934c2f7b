"""Modules made of a user's own Python files, pinned by the SHA-256 of their text.

Everything else about plugins stands in :mod:`fglaudit.registry`; whether a suite's file may run at all is decided in
:mod:`fglaudit.suite.plugin_files`.
"""

from __future__ import annotations

import hashlib
import linecache
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fglaudit.errors import FglauditError, shown
from fglaudit.files import limits
from fglaudit.files.user import read_file, resolved, user_path
from fglaudit.plugins.monkeypatch_guard import functions, refuse_altered
from fglaudit.tracebacks import place

_files: dict[Path, str] = {}
_CHANGED = "a plugin file stays the same while a run lasts"


def read_plugin(path: Path) -> tuple[bytes, str]:
    """Return the text of a plugin file and its SHA-256 in hex digits; nothing of it runs."""
    text = read_file(path, "a plugin given as file.py:Class", limits.PLUGIN_BYTES)
    return text, hashlib.sha256(text).hexdigest()


def refuse_without_class(name: str) -> None:
    """Raise :class:`FglauditError` where ``name`` is a Python file without a class: names of plugins end in no .py."""
    if not name.endswith(".py"):
        return
    path = Path(name)
    try:
        classes = re.findall(r"^class (\w+)", read_plugin(path)[0].decode("utf-8", "replace"), re.MULTILINE)
    except FglauditError:
        classes = []
    fix = " or ".join(f"{name}:{cls}" for cls in classes[:3]) or f"{name}:Class"
    raise FglauditError(f"a plugin file is named together with its class; got {shown(name)}; write {fix}")


def names_of_files(value: Any) -> Iterator[str]:
    """Yield every text in ``value`` that reads ``file.py:Class``, however deep it stands."""
    if isinstance(value, str):
        if re.search(r"\.py:\w+\Z", value):
            yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from names_of_files(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from names_of_files(part)


def is_loaded(path: Path) -> bool:
    """Return whether the file at this absolute path was imported."""
    return path in _files


def load_file(path: Path, expected: str | None = None) -> Any:
    """Run a user's file under a name of its own; the same file is run once.

    The text that was read, and that has the digest ``expected``, is compiled itself: Python's own import would read the
    file a second time, or run a compiled copy beside it.
    """
    full = resolved(user_path(path, "a plugin given as file.py:Class"), "a plugin given as file.py:Class")
    text, digest = read_plugin(full)
    if (expected or _files.get(full) or digest) != digest:
        raise FglauditError(
            f"{_CHANGED}; {full} has sha256 {digest} instead of {expected or _files[full]}; start a new run with it"
        )
    module_name = f"fglaudit_plugin_{full.stem}_{hashlib.blake2b(str(full).encode(), digest_size=4).hexdigest()}"
    if full in _files and module_name in sys.modules:
        return sys.modules[module_name]
    module = types.ModuleType(module_name)
    module.__file__ = str(full)
    sys.modules[module_name] = module  # dataclasses and pickle look modules up here
    # Tracebacks show lines of this text, also if the file changes.
    linecache.cache[str(full)] = (len(text), None, text.decode("utf-8", "replace").splitlines(True), str(full))
    before = functions()
    try:
        exec(compile(text, str(full), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        beside = isinstance(error, ModuleNotFoundError) and (full.parent / f"{error.name}.py").is_file()
        fix = "plugin files cannot import one another: put both into one file" if beside else "correct the file"
        raise FglauditError(
            f"a plugin file must import without error; {full} raises {type(error).__name__}: {error}{place(error)};"
            f" {fix}"
        ) from error
    try:
        refuse_altered(before, {str(full)})
    except FglauditError:
        del sys.modules[module_name]
        raise
    _files[full] = digest
    return module


def files_run() -> set[str]:
    """Return the plugin files that were imported so far."""
    return {str(path) for path in _files}


def loaded_files() -> dict[str, str]:
    """Return the plugin files imported so far with the SHA-256 of their texts: worker processes must import them too.

    Raises:
        FglauditError: one of them has changed since.
    """
    for path, digest in _files.items():
        if (found := read_plugin(path)[1]) != digest:
            raise FglauditError(f"{_CHANGED}; {path} has sha256 {found} instead of {digest}; start a new run with it")
    return {str(path): digest for path, digest in _files.items()}


def load_files(paths: Mapping[str, str]) -> None:
    """Import plugin files by path and SHA-256: before plugins are built, and in another process before objects of their
    classes are unpickled there.

    Raises:
        FglauditError: a file cannot be imported, or has another content.
    """
    for path, digest in paths.items():
        load_file(Path(path), digest)
