"""Whether a folder is a run's, or somebody else's that must be left alone."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

from fglaudit.errors import FglauditError, shown
from fglaudit.files.own import check_writable, reason
from fglaudit.files.user import user_path

CONFIRMED = "confirmed"
"""Folder of a run with the runs of its chosen settings on fresh seeds, see :mod:`fglaudit.commands.confirming`."""
_HEAD = b'{"digest": "'
_MADE_FIRST = {"cells", "transcripts"}
"""Empty folders that a run which was killed at once may leave."""


def run_folder(directory: Path, fix: str = "use another --out") -> Path:
    """Return the folder of a run as a path that the system can look at.

    Args:
        fix: what its user can do about another path.

    Raises:
        FglauditError: too long a path, characters that none can have, no right to look, or a file in its place.
    """
    path = user_path(directory, "the folder of a run")
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            raise FglauditError(f"a run is a folder; {path} is a file; {fix}")
    except FileNotFoundError as error:
        if path.is_symlink():
            raise FglauditError(f"the folder of a run must be there; {path} is a link to nothing; mend it") from error
    except (OSError, ValueError) as error:
        raise FglauditError(
            f"the folder of a run must have a usable path; {shown(str(path))}: {reason(error)}; {fix}"
        ) from error
    return path


READ = "name the --out folder of a run"
"""The fix where a run is read and nothing was chosen by --out."""


def check_ours(directory: Path) -> None:
    """Raise :class:`FglauditError` unless ``directory`` is absent, empty or holds a run.

    A run is known by its ``run.json``, or, where that was lost, by a record.
    """
    try:
        if not directory.is_dir():
            return
        names = sorted(path.name for path in directory.iterdir())
        if _is_ours(directory / "run.json") or any(map(_is_ours, (directory / "cells").glob("*.json"))):
            return
        foreign = [name for name in names if not (name.startswith(".") or _empty(directory, name))]
    except OSError as error:
        raise FglauditError(
            f"the output folder must be readable; {directory}: {reason(error)}; use another --out"
        ) from error
    if foreign:
        raise FglauditError(
            f"the output folder must be new, empty or a run; {directory} holds {shown(foreign[0])[1:-1]}; use another"
            " --out"
        )


def check_place(directory: Path) -> None:
    """Raise :class:`FglauditError` unless a run can be written into ``directory``, or that be made."""
    there = next(folder for folder in (directory, *directory.absolute().parents) if folder.is_dir())
    check_writable(there, "use another --out")


def _empty(directory: Path, name: str) -> bool:
    return name in _MADE_FIRST and not any((directory / name).iterdir())


def _is_ours(path: Path) -> bool:
    """Whether the file begins as only files of a run do, damaged or not."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            return file.read(len(_HEAD)) == _HEAD
    except OSError:
        return False


def free_name(path: Path) -> Path:
    """Return ``path``, or with a number behind it where there is something already."""
    return next(
        candidate
        for number in itertools.count()
        if not os.path.lexists(candidate := path if not number else path.with_name(f"{path.name}.{number}"))
    )
