"""The data root, the cache of derived files, and the root's checksums. Nothing is written into a root."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from fglaudit.errors import FglauditError

CHECKSUMS = "SHA256SUMS"
DEFAULT_ROOT = Path("../shared/data")


def find_root(root: str | None, name: str) -> Path:
    """Return the folder that holds the public data sets: ``root``, else ``$FGLAUDIT_DATA``, else ``../shared/data``.

    Raises:
        FglauditError: if that folder does not exist.
    """
    stated = root or os.environ.get("FGLAUDIT_DATA")
    folder = Path(stated).expanduser() if stated else DEFAULT_ROOT
    if folder.is_dir():
        return folder
    origin = "root" if root else "FGLAUDIT_DATA" if stated else "neither root nor FGLAUDIT_DATA is set; the default"
    raise FglauditError(
        f"{name} is read from raw files under a data root; {origin} {str(folder)!r} is no folder; "
        f"give --root DIR, or get the files with: fglaudit data fetch {name} --root DIR"
    )


def cache_folder() -> Path:
    """Return ``$FGLAUDIT_CACHE`` or ``~/.cache/fglaudit``, made if it is missing."""
    folder = Path(os.environ.get("FGLAUDIT_CACHE") or "~/.cache/fglaudit").expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FglauditError(
            f"the cache folder must be writable; {folder}: {error}; set FGLAUDIT_CACHE to a folder of yours"
        ) from error
    return folder


def require_files(name: str, root: Path, folder: Path, files: Iterable[str]) -> list[Path]:
    """Return the paths of ``files`` in ``folder``, or raise naming the folder, the missing files and the fix."""
    paths = [folder / file for file in files]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise FglauditError(
            f"{name} needs its raw files in {folder}; missing: {', '.join(missing)}; give the root that has them"
            f" (--root DIR or FGLAUDIT_DATA), or run: fglaudit data fetch {name} --root {root}"
        )
    return paths


def sha256(path: Path) -> str:
    """Return the hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_checksums(root: Path) -> dict[str, str]:
    """Return digests by path relative to ``root`` from its ``SHA256SUMS``; empty where there is none."""
    listing = root / CHECKSUMS
    if not listing.is_file():
        return {}
    pairs = (line.split(maxsplit=1) for line in listing.read_text().splitlines() if line.strip())
    return {path.lstrip("*").removeprefix("./"): digest for digest, path in pairs}


def content_key(name: str, root: Path, paths: Iterable[Path]) -> str:
    """Return one digest over the content of ``paths``, each checked against the root's ``SHA256SUMS`` if there is one.

    Raises:
        FglauditError: if a file differs from its checksum; raised before anything parses the file.
    """
    expected = read_checksums(root)
    total = hashlib.sha256()
    for path in paths:
        digest = sha256(path)
        listed = expected.get(path.relative_to(root).as_posix(), digest)
        if listed != digest:
            raise FglauditError(
                f"raw files must match {root / CHECKSUMS}; {path} is corrupt (sha256 {digest[:12]}..., listed"
                f" {listed[:12]}...); get it again: delete it, then fglaudit data fetch {name} --root {root}"
            )
        total.update(f"{path.name} {digest}\n".encode())
    return total.hexdigest()[:16]
