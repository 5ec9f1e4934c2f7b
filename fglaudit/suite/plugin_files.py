"""Files of Python code that a suite names, and whether it may run them.

Importing ``path/to/file.py:Class`` runs the file. A suite that was sent by somebody can name any file of the machine,
so a file runs only

* if it lies beside the suite file, in its folder or below (links followed), or
* if the suite names its content, ``plugins: {path: sha256}``, or
* if the user trusts all of them with ``--trust-plugins``.

A content that the suite names is checked in every case. What is checked is what runs: a file whose text changes
afterwards is refused by :mod:`fglaudit.plugins.modules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fglaudit.errors import FglauditError, shown
from fglaudit.files.user import is_file, resolved, user_path
from fglaudit.plugins.modules import load_files, names_of_files, read_plugin

_WHAT = "a plugin given as file.py:Class"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PluginFile:
    """A file that a suite names: its absolute path and the SHA-256 of its content."""

    path: Path
    sha256: str


def announce_nothing(files: Sequence[PluginFile]) -> None:
    """Say nothing about ``files``."""


@dataclass(frozen=True)
class Trust:
    """How far the files that a suite names are trusted.

    Attributes:
        everywhere: files may lie anywhere (``--trust-plugins``).
        imports: False checks paths, contents and class names without running anything (``--dry-run``).
        announce: is told of all files before the first one runs.
    """

    everywhere: bool = False
    imports: bool = True
    announce: Callable[[Sequence[PluginFile]], None] = announce_nothing


def near_suite(name: str, folder: Path | None) -> str:
    """Return ``file.py:Class`` with the file's absolute path, looked for from here and then beside the suite file.

    Args:
        folder: of the suite file; None for a suite that is no file.
    """
    file, _, cls = name.rpartition(":")
    path = user_path(file, _WHAT)
    if folder is not None and not is_file(path) and not path.is_absolute():
        path = folder / path
    return f"{resolved(path, _WHAT)}:{cls}"


def check_plugin_files(
    entries: Sequence[Any], pinned: Mapping[str, str], folder: Path | None, trust: Trust
) -> tuple[PluginFile, ...]:
    """Return the files that ``entries`` name, each allowed to run; announces them, and imports them if ``trust`` does.

    Args:
        entries: of all plugins of a suite, as written.
        pinned: SHA-256 by path, the suite's key ``plugins``.
        folder: of the suite file, or None.

    Raises:
        FglauditError: a file is missing, not trusted, or has another content than the suite says.
    """
    wanted = {Path(near_suite(name, folder).rpartition(":")[0]) for name in names_of_files(entries)}
    expected = {}
    for text, digest in pinned.items():
        path = Path(near_suite(f"{text}:", folder).rpartition(":")[0])
        if not _SHA256.fullmatch(digest):
            raise FglauditError(
                f"plugins gives the SHA-256 of each file as 64 hex digits; {shown(text)} has {shown(digest)}; run"
                " sha256sum on the file"
            )
        if path not in wanted:
            raise FglauditError(f"plugins lists files that the suite uses; it does not use {path}; remove that line")
        expected[path] = digest
    files = tuple(PluginFile(path, read_plugin(path)[1]) for path in sorted(wanted))
    for file in files:
        if expected.get(file.path, file.sha256) != file.sha256:
            raise FglauditError(
                f"a plugin file must be the one that the suite names; {file.path} has sha256 {file.sha256}, plugins"
                f" says {expected[file.path]}; get that file, or read this one and correct the line"
            )
        beside = folder is not None and file.path.is_relative_to(resolved(folder, "a suite's folder"))
        if not (beside or trust.everywhere or file.path in expected):
            raise FglauditError(
                f"a suite runs plugin files of its own folder; {file.path} lies elsewhere; read it, then give"
                f" --trust-plugins, or write in the suite plugins: {{{file.path}: {file.sha256}}}"
            )
    trust.announce(files)
    if trust.imports:
        load_files({str(file.path): file.sha256 for file in files})
    return files
