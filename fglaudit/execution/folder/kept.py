"""What a run keeps of its cells beside their records, and how an older attempt is cleared without touching anything
else: whatever lies in a folder that no run can have written is somebody's."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from fglaudit.errors import FglauditError
from fglaudit.execution.folder.run_folder import free_name
from fglaudit.files.own import TEMPORARY, read_own, write_new
from fglaudit.rng import KEY_BYTES
from fglaudit.wire.transcript import OPENED

_OURS = re.compile(
    r"(messages-\d{5,9}|side|truth)\.safetensors|(transcript|side|recording|truth)\.json|"
    + re.escape(TEMPORARY)
    + r"[0-9a-f]+\.tmp"
)
KEY_FILE = "secret.key"
_KEY = re.compile(rb"[0-9a-f]{32}\n")


def remove_kept(folder: Path) -> None:
    """Remove a recording or a truth, where there is one; links are not followed, and foreign files stay."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return
    except OSError:
        return
    remove_kept(folder / OPENED)
    for path in list(folder.iterdir()):
        if _OURS.fullmatch(path.name) is None:
            continue
        if path.is_dir() and not path.is_symlink():  # no run makes one: it is moved out of the way
            path.rename(free_name(path.with_name(f"{path.name}.aside")))
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()


def secret_key(directory: Path, *, started: bool) -> bytes:
    """Return the key of a run with ``--secret``: 128 bits, drawn by the system at the first call and then read again.

    Args:
        started: whether cells are finished already, so that their key must be there.

    Raises:
        FglauditError: lost, damaged, or readable by others.
    """
    path = directory / KEY_FILE
    fix = "put it back, or use another --out"
    if not os.path.lexists(path):
        if started:
            raise FglauditError(f"a secret run needs the key that it began with; there is no {path}; {fix}")
        key = os.urandom(KEY_BYTES)
        write_new(path, key.hex().encode() + b"\n")
        return key
    text = read_own(path, "the key of a secret run", fix)
    if _KEY.fullmatch(text) is None:
        raise FglauditError(f"the key of a secret run has 32 hex digits; {path} holds something else; {fix}")
    if path.stat().st_mode & 0o077:
        raise FglauditError(f"the key of a secret run is its owner's alone; others may read {path}; chmod 600, {fix}")
    return bytes.fromhex(text.decode())
