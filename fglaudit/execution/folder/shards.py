"""Several processes, on one machine or many, that compute one run in one shared folder.

Shard i of N computes every N-th cell, from the i-th on. What they share is the folder and nothing else: a cell is
claimed by a locked file before it is computed, its record appears by a rename, and the lock of the run is held only
while ``run.json`` or the reports are written. A process that dies loses its locks with it; its shard can be started
again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from fglaudit.errors import FglauditError, shown
from fglaudit.files.own import make_folder, reason

SHARDS, CLAIMS = ".shards", ".claims"
MOST_SHARDS = 10_000
WAIT_SECONDS = 600.0
"""How long a shard waits for the others to write ``run.json`` or the reports."""
_TEXT = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})")


@dataclass(frozen=True)
class Shard:
    """Part ``number`` of ``of`` parts, counted from 1."""

    number: int
    of: int

    @staticmethod
    def parse(text: str) -> Shard:
        """Read "2/4".

        Raises:
            FglauditError: for anything else.
        """
        found = _TEXT.fullmatch(text)
        number, of = (int(part) for part in found.groups()) if found else (0, 0)
        if not 1 <= number <= of <= MOST_SHARDS:
            raise FglauditError(
                f"--shard is i/N with 1 <= i <= N <= {MOST_SHARDS}; got {shown(text)}; use for example --shard 1/4"
            )
        return Shard(number, of)

    @property
    def name(self) -> str:
        return f"{self.number}-of-{self.of}"

    def part(self, cells: Sequence[str]) -> list[str]:
        """Return the cells of this shard."""
        return list(cells[self.number - 1 :: self.of])


@contextlib.contextmanager
def held(directory: Path, shard: Shard) -> Iterator[None]:
    """Be the process of ``shard``.

    Raises:
        FglauditError: if there is one already.
    """
    make_folder(directory / SHARDS, 0o700)
    with _lock(directory / SHARDS / f"{shard.name}.lock", directory) as mine:
        if not mine:
            raise FglauditError(
                f"one process computes a shard; {shard.number}/{shard.of} of {directory} is running already; start"
                " another one"
            )
        yield


def check_none(directory: Path) -> None:
    """Raise :class:`FglauditError` if a shard of the run is being computed."""
    for path in sorted((directory / SHARDS).glob("*.lock")):
        with _lock(path, directory) as free:
            if not free:
                shard = path.stem.replace("-of-", "/")
                raise FglauditError(
                    f"one run at a time may use a folder; shard {shard} of {directory} is being computed; wait for it"
                )


@dataclass
class Claims:
    """The cells that this process computes just now, and that no other shall compute."""

    directory: Path
    _taken: dict[str, FileLock] = field(default_factory=dict)

    def take(self, cell: str) -> bool:
        """Claim ``cell``; False if another process has it."""
        if cell in self._taken:
            return True
        make_folder(self.directory / CLAIMS, 0o700)
        lock = _held(self.directory / CLAIMS / f"{cell}.lock", self.directory)
        if lock is not None:
            self._taken[cell] = lock
        return lock is not None

    def release(self, cell: str) -> None:
        """Let go of ``cell``."""
        if (lock := self._taken.pop(cell, None)) is not None:
            lock.release()

    def release_all(self) -> None:
        for cell in list(self._taken):
            self.release(cell)


@contextlib.contextmanager
def _lock(path: Path, directory: Path) -> Iterator[bool]:
    lock = _held(path, directory)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def _held(path: Path, directory: Path) -> FileLock | None:
    """Return the lock at ``path``, which is then held; None if another process holds it."""
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return None
    except (OSError, NotImplementedError) as error:
        raise FglauditError(
            f"shards need a shared folder whose file system can lock files; {directory}: {reason(error)}; use another"
            " --out"
        ) from error
    return lock
