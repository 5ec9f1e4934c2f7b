"""The data root, the cache of derived files, and the root's checksums. Nothing is written into a root."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fglaudit.datasets.catalog import DESCRIPTIONS
from fglaudit.datasets.published import PUBLISHED
from fglaudit.errors import FglauditError, shown
from fglaudit.files.own import reason
from fglaudit.files.user import is_file, is_folder, read_file, user_path

CHECKSUMS = "SHA256SUMS"
CHECKSUMS_BYTES = 2**24
DEFAULT_ROOT = Path("../shared/data")


def find_root(root: str | None, name: str) -> Path:
    """Return the folder that holds the public data sets: ``root``, else ``$FGLAUDIT_DATA``, else ``../shared/data``.

    Raises:
        FglauditError: if that folder does not exist.
    """
    stated = root or os.environ.get("FGLAUDIT_DATA")
    folder = user_path(stated, "a data root") if stated else DEFAULT_ROOT
    if is_folder(folder):
        return folder
    example = name if name in DESCRIPTIONS else "cora"  # the command that is printed must be one that runs
    origin = "root" if root else "FGLAUDIT_DATA" if stated else "neither root nor FGLAUDIT_DATA is set; the default"
    raise FglauditError(
        f"{name} is read from raw files under a data root; {origin} {str(folder)!r} is no folder; "
        f"give --root DIR, or get the files with: fglaudit data fetch {example} --root DIR"
    )


def no_root() -> str:
    """Say why no data root is found where none is asked for."""
    stated = os.environ.get("FGLAUDIT_DATA")
    return f"none found: FGLAUDIT_DATA is {shown(stated)}, which is no folder" if stated else "none found"


def cache_folder() -> Path:
    """Return ``$FGLAUDIT_CACHE`` or ``~/.cache/fglaudit``, made if it is missing."""
    folder = user_path(os.environ.get("FGLAUDIT_CACHE") or "~/.cache/fglaudit", "the cache folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FglauditError(
            f"the cache folder must be writable; {folder}: {reason(error)}; set FGLAUDIT_CACHE to a folder of yours"
        ) from error
    return folder


def require_files(name: str, root: Path, folder: Path, files: Iterable[str]) -> list[Path]:
    """Return the paths of ``files`` in ``folder``, or raise naming the folder, the missing files and the fix."""
    paths = [folder / file for file in files]
    missing = [path.name for path in paths if not is_file(path)]
    if missing:
        raise FglauditError(
            f"{name} needs its raw files in {folder}; missing: {', '.join(missing)}; give the root that has them"
            f" (--root DIR or FGLAUDIT_DATA), or run: fglaudit data fetch {name} --root {root}"
        )
    return paths


def sha256(path: Path) -> str:
    """Return the hex digest of a file's content.

    Raises:
        FglauditError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FglauditError(f"data files must be readable; {path}: {reason}; check its rights") from error


def read_checksums(root: Path) -> dict[str, str]:
    """Return digests by path relative to ``root`` from its ``SHA256SUMS``; empty where there is none.

    Raises:
        FglauditError: a line is not a digest and a path below ``root``.
    """
    listing = root / CHECKSUMS
    if not is_file(listing):
        return {}
    sums: dict[str, str] = {}
    lines = read_file(listing, "a list of checksums", CHECKSUMS_BYTES).decode("utf-8", "replace").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](\S.*?)\s*", line)
        path = found[2].removeprefix("./") if found else ""
        if found is None or path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise FglauditError(
                f"lines of {listing} are a SHA-256 and a path under the root; line {number} is {shown(line)}; write the"
                f" file with sha256sum in {root}"
            )
        sums[path] = found[1].lower()
    return sums


@dataclass(frozen=True)
class RawFiles:
    """Raw files of one data set after the comparison of their sums.

    Attributes:
        digests: SHA-256 of every file by its path.
        key: one digest over all of them.
        published: every file is the published one; others are parsed as files of unknown origin.
        notes: files that are not the published ones although there are such.
    """

    digests: dict[Path, str]
    key: str
    published: bool
    notes: tuple[str, ...]


def checked_files(name: str, root: Path, paths: Iterable[Path]) -> RawFiles:
    """Compare ``paths`` with the root's ``SHA256SUMS``, where there is one, and with the published sums.

    A file that is not the published one is refused as damaged, unless ``SHA256SUMS`` lists it: then the owner of the
    root means it, and a note says so.

    Raises:
        FglauditError: if a file differs; raised before anything parses the file.
    """
    listed = read_checksums(root)
    total = hashlib.sha256()
    digests, foreign = {}, []
    for path in paths:
        place = path.relative_to(root).as_posix()
        digest = digests[path] = sha256(path)
        known = PUBLISHED.get(place)
        for source, expected in ((str(root / CHECKSUMS), listed.get(place)), ("the published files", known)):
            if expected not in (None, digest) and not (expected == known and listed.get(place) == digest):
                raise FglauditError(
                    f"raw files must match {source}; {path} is corrupt (sha256 {digest[:12]}..., expected"
                    f" {str(expected)[:12]}...); get it again: delete it, then fglaudit data fetch {name} --root"
                    f" {root}; a version of your own must stand in {root / CHECKSUMS}"
                )
        if known not in (None, digest):
            foreign.append(path.name)
        total.update(f"{path.name} {digest}\n".encode())
    notes = (f"{name}: not the published raw files: {', '.join(foreign)}; figures may differ",) if foreign else ()
    published = all(PUBLISHED.get(path.relative_to(root).as_posix()) == digest for path, digest in digests.items())
    return RawFiles(digests, total.hexdigest()[:16], published, notes)
