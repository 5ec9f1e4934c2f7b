"""Reading files whose paths a user wrote: whatever is wrong with path or file is one message."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fglaudit.errors import FglauditError, shown


def user_path(text: str | Path, what: str) -> Path:
    """Return ``text`` as a path with ``~`` replaced.

    Raises:
        FglauditError: no such home folder, or characters that no path can have.
    """
    try:
        path = Path(text).expanduser()
        os.fsencode(path)
    except (RuntimeError, ValueError) as error:
        raise FglauditError(f"{what} must be given by a path; {shown(str(text))}: {error}; correct it") from error
    if "\0" in str(path):
        raise FglauditError(f"{what} must be given by a path; {shown(str(text))} holds a null character; correct it")
    return path


def is_file(path: Path) -> bool:
    """Return whether a regular file can be found at ``path``; False as well where the system refuses to look."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Return whether a folder can be found at ``path``; False as well where the system refuses to look."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def resolved(path: Path, what: str) -> Path:
    """Return the absolute path with all links followed.

    Raises:
        FglauditError: links go in a circle, or the system refuses to look.
    """
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise FglauditError(f"{what} must be given by a path; {shown(str(path))}: {error}; correct it") from error


def read_file(path: Path, what: str, most: int) -> bytes:
    """Return the content of the regular file ``path``, read once.

    Args:
        what: the kind of file, for messages, e.g. ``a suite file``.
        most: bytes; larger files are refused before they are read.

    Raises:
        FglauditError: missing, no regular file, unreadable, or too large.
    """
    try:
        # Without O_NONBLOCK opening a pipe that nobody writes to never returns.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise FglauditError(f"{what} must be a regular file; {path} is none; give the path of a file")
        with os.fdopen(handle, "rb") as file:
            data = file.read(min(status.st_size, most) + 1)
    except FileNotFoundError as error:
        raise FglauditError(f"{what} must exist; there is no file {path}; correct the path") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FglauditError(f"{what} must be readable; {shown(str(path))}: {reason}; check path and rights") from error
    if len(data) > most:
        raise FglauditError(f"{what} may have at most {most} bytes; {path} is larger; make it smaller")
    return data


def read_text(path: Path, what: str, most: int) -> str:
    """Return the UTF-8 text of the regular file ``path``, without a mark of byte order; see :func:`read_file`.

    Raises:
        FglauditError: as there, or it is other text.
    """
    try:
        return read_file(path, what, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FglauditError(
            f"{what} must be UTF-8 text; {path}: {error.reason} at byte {error.start}; save it as UTF-8"
        ) from error
