"""Files that fglaudit itself writes: whole or absent, never through a link, never over a file of somebody else, and
with a digest that shows damage.

A *stamped* JSON file is one object whose first key is the digest of everything after it and of the file's name: a
flipped digit, a cut end, or a file put in the place of another one is seen on reading.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fglaudit.errors import FglauditError, shown

TEMPORARY = ".fglaudit-"
"""How the names of our temporary files begin; nothing else is ever cleaned up."""
_KEY = '{"digest": "'
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK


class DamagedError(FglauditError):
    """A stored file is not what was written."""


class UnwrittenError(FglauditError):
    """A file of ours could not be written; those that were stay."""

    def __init__(self, path: Path, error: OSError, option: str) -> None:
        """Say so of ``path``, whose place the user chose by ``option``."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        super().__init__(
            f"the output folder must be writable; writing {shown(str(path))} failed: {reason(error)};"
            f" {'or' if full else 'make it so, or'} use another {option}"
        )


def digest(data: bytes, name: str = "") -> str:
    """Return 32 hex digits over ``data`` and the name that it is stored under."""
    return hashlib.blake2b(data, digest_size=16, key=name.encode()[:64]).hexdigest()


def stamped(data: Mapping[str, Any], name: str) -> str:
    """Return ``data`` as JSON with its digest; ``name`` is that of the file."""
    body = json.dumps(data, default=str)[1:]  # in order: of some mappings it counts
    return f'{_KEY}{digest(body.encode(), name)}", {body}\n'


def unstamped(text: bytes, name: str) -> dict[str, Any]:
    """Return what :func:`stamped` was given.

    Raises:
        ValueError: not such a file, or not as it was written.
    """
    head = len(_KEY)
    found, body = text[head : head + 32], text[head + 35 :].removesuffix(b"\n")
    if text[:head] != _KEY.encode() or text[head + 32 : head + 35] != b'", ':
        raise ValueError("it does not begin with a digest")
    if digest(body, name) != found.decode("ascii", "replace"):
        raise ValueError("its digest is that of another content")
    try:
        data = json.loads(b"{" + body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(data, dict):
        raise ValueError("no JSON object")
    return data


@contextlib.contextmanager
def open_own(path: Path, what: str, fix: str) -> Iterator[int]:
    """Open the regular file ``path`` for reading and give its handle; a link in its place is not followed.

    Raises:
        DamagedError: missing, a folder, a link, unreadable; the message ends in ``fix``.
    """
    try:
        # Without O_NONBLOCK opening a pipe that nobody writes to never returns.
        handle = os.open(path, os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0))
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise DamagedError(f"{what} must be a regular file; {path} is none; {fix}")
            yield handle
        finally:
            os.close(handle)
    except (OSError, ValueError, MemoryError) as error:
        raise DamagedError(f"{what} must be readable; {shown(str(path))}: {reason(error)}; {fix}") from error


def read_own(path: Path, what: str, fix: str) -> bytes:
    """Return the content of the regular file ``path``; a link in its place is not followed.

    Raises:
        DamagedError: missing, a folder, a link, unreadable; the message ends in ``fix``.
    """
    with open_own(path, what, fix) as handle, os.fdopen(handle, "rb", closefd=False) as file:
        return file.read()


def read_stamped(path: Path, what: str, fix: str) -> dict[str, Any]:
    """Return the content of a stamped file.

    Raises:
        DamagedError: missing, unreadable, or damaged; the message ends in ``fix``.
    """
    try:
        return unstamped(read_own(path, what, fix), path.name)
    except ValueError as error:
        raise DamagedError(f"{what} must be whole; {path} is damaged ({error}); {fix}") from error


def reason(error: BaseException) -> str:
    """Return an error of the system in a few words, with the fix where there is one."""
    if isinstance(error, OSError):
        hint = {
            errno.ENOSPC: " (make room on the disk)",
            errno.EDQUOT: " (your share of the disk is used up)",
            errno.EROFS: " (choose a folder that can be written)",
            errno.ELOOP: " (a link lies in its place; remove it)",
            errno.ENAMETOOLONG: " (choose a shorter one)",
        }.get(error.errno or 0, "")
        return f"{error.strerror or type(error).__name__}{hint}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def write_new(path: Path, data: bytes, mode: int = 0o600, *, option: str = "--out") -> None:
    """Write a file that must not exist yet; a link in its place is not followed.

    Args:
        option: of the command, by which the user chose the place.

    Raises:
        FglauditError: if it exists or cannot be written.
    """
    try:
        with os.fdopen(os.open(path, _NEW, mode), "wb") as file:
            file.write(data)
    except OSError as error:
        if error.errno != errno.EEXIST:
            with contextlib.suppress(OSError):
                path.unlink()
        raise UnwrittenError(path, error, option) from error


def write_atomic(
    path: Path, text: str | bytes, *, mode: int = 0o644, linked: bool = True, option: str = "--out"
) -> None:
    """Write so that ``path`` holds either its old content or all of the new, even if the machine stops.

    Args:
        linked: whether the folder of ``path`` may be a link: a run's own folder may, those inside it may not.
        option: of the command, by which the user chose the place.

    Raises:
        FglauditError: if that is not possible, with path and cause.
    """
    data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
    temporary = f"{TEMPORARY}{secrets.token_hex(8)}.tmp"
    try:
        with _opened(path.parent, linked) as folder:
            if not _may_replace(path.name, folder):
                raise FglauditError(f"files are never written over a folder; {path} is one; move it away")
            try:
                with os.fdopen(os.open(temporary, _NEW, mode, dir_fd=folder), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
    except OSError as error:
        raise UnwrittenError(path, error, option) from error


@contextlib.contextmanager
def _opened(folder: Path, linked: bool) -> Iterator[int]:
    flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
    handle = os.open(folder, flags if linked else flags | _NO_LINK)
    try:
        yield handle
    finally:
        os.close(handle)


def _may_replace(name: str, folder: int) -> bool:
    try:
        return not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return True


def check_writable(folder: Path, fix: str) -> None:
    """Write a file into ``folder`` and remove it again.

    Raises:
        FglauditError: that is not possible; the message ends in ``fix``.
    """
    probe = folder / f"{TEMPORARY}{secrets.token_hex(8)}.tmp"
    try:
        os.close(os.open(probe, _NEW, 0o600))
        probe.unlink()
    except OSError as error:
        raise FglauditError(f"the folder must be writable; {shown(str(folder))}: {reason(error)}; {fix}") from error


def make_folder(path: Path, mode: int = 0o755) -> None:
    """Make a folder of ours, with those above it; what is there already must be a folder and no link.

    Raises:
        FglauditError: something else lies there, or it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=mode)
        there = stat.S_IFMT(path.lstat().st_mode)
    except (OSError, ValueError) as error:
        raise FglauditError(
            f"the output folder must be writable; {shown(str(path))}: {reason(error)}; use another --out"
        ) from error
    if there != stat.S_IFDIR:
        raise FglauditError(f"a run makes its own folders; {path} is a link or a file; move it away")


def remove_tree(path: Path) -> None:
    """Remove a folder that this program made for itself alone; of a link in its place only the link."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)
