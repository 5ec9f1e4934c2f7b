"""The folder of one run: atomic records, resume, ``findings.csv`` and ``coverage.csv``.

::

    runs/NAME/suite.yaml       the suite with all defaults filled in
              run.json         the cells in order, with what a missing one would be reported as
              cells/HASH.json  one finished cell each
              transcripts/HASH/  with record: all, what attacks need
              truth/HASH/        the truth of the same run, for the scorer alone
              attacks/NAME/      what `fglaudit attack` found later
              secret.key       with --secret, what makes the noise secret
              findings.csv     what was measured, and what failed; it grows with every finished cell
              coverage.csv     with the same columns, what did not apply and why; both together have every row
              summary.csv report.html report.md findings.json summary.tex figure-1.svg
              .spool/          the messages of cells that are being computed; removed whenever a run ends
              .lock            held while a run writes here; by a shard only while it writes what all shards share
              .shards/ .claims/  locks of shards and of the cells that they compute

Every file appears whole or not at all (written beside, flushed to disk, renamed), so a run may be killed at any moment.
``run.json`` and the records carry a digest; one that is damaged counts as missing, and is announced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fglaudit import __version__, registry
from fglaudit.errors import FglauditError
from fglaudit.execution.folder.growing import FIX, RULE, grows
from fglaudit.execution.folder.lock import folder_lock
from fglaudit.execution.folder.plan import Planned
from fglaudit.execution.folder.run_folder import check_ours, free_name, run_folder
from fglaudit.execution.folder.shards import WAIT_SECONDS, Shard, check_none, held
from fglaudit.execution.folder.stored_record import Made, damaged, record_text, unusable
from fglaudit.execution.folder.stored_run import OTHER, Manifest, no_cycles_sought, read_manifest, read_stored
from fglaudit.files.own import (
    TEMPORARY,
    make_folder,
    remove_tree,
    write_atomic,
)
from fglaudit.finding import CellRecord, Status
from fglaudit.interfaces import Defense
from fglaudit.recording import Recording
from fglaudit.scoring.truth import GroundTruth
from fglaudit.suite.cell import Cell
from fglaudit.suite.suite import Suite

SPOOL = ".spool"


@dataclass
class RunStore:
    """The folder of a run while this process holds its lock.

    Attributes:
        cells: of the suite by their hashes, in order.
        made: what all cells of the run have in common; where it is continued, that of its first part.
        notes: what a user should know, e.g. records that were set aside.
    """

    directory: Path
    suite: Suite
    cells: Mapping[str, Cell]
    made: Made
    notes: list[str] = field(default_factory=list)
    shard: Shard | None = None

    @property
    def mine(self) -> list[str]:
        """The cells that this process computes, by hash: its shard's, or all."""
        return list(self.cells) if self.shard is None else self.shard.part(list(self.cells))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the run, for what all shards write; a run without shards holds it all the time."""
        if self.shard is None:
            yield
            return
        with folder_lock(self.directory, WAIT_SECONDS):
            yield

    def finished(self, cells: Iterable[str] | None = None) -> dict[str, CellRecord]:
        """Return the records that need no new run, by cell hash, of ``cells`` or of all that this process computes.

        Cells with a failed row are run again.

        A record that cannot be used is renamed to ``*.corrupt``, noted, and its cell is run again.
        """
        with no_cycles_sought():
            return self._finished(self.mine if cells is None else cells)

    def _finished(self, cells: Iterable[str]) -> dict[str, CellRecord]:
        found = {}
        aside: dict[str, list[Path]] = {}
        for cell in cells:
            path = self.record_path(cell)
            if not os.path.lexists(path):
                continue
            try:
                record, made = read_stored(path)
                if made != self.made:
                    raise damaged(path, OTHER) from OTHER
            except FglauditError as error:
                path.replace(free_name(path.with_suffix(".json.corrupt")))
                aside.setdefault(unusable(error), []).append(path)
                continue
            if any(row.status is Status.FAILED for row in record.findings):
                continue
            if self.cells[cell].record == "all" and any(row.device for row in record.findings):
                try:
                    Recording.check_files(self.recording_path(cell))
                    GroundTruth.check_files(self.truth_path(cell))
                except FglauditError as error:
                    self.notes.append(f"{error}; the cell runs again")
                    continue
            found[cell] = record
        for why, paths in aside.items():
            one = len(paths) == 1
            named = f"{paths[0]}{'' if one else f' and {len(paths) - 1} more'}"
            again = "the cell runs again" if one else f"{len(paths)} cells run again"
            self.notes.append(f"{named} cannot be used ({why}); set aside as *.json.corrupt, {again}")
        return found

    @property
    def spool(self) -> Path:
        """Folder for the messages of cells that are being computed."""
        return self.directory / SPOOL if self.shard is None else self.directory / SPOOL / self.shard.name

    def remove_spool(self) -> None:
        """Remove the messages of all cells: after this nothing is computed any more."""
        remove_tree(self.spool)

    def record_path(self, cell: str) -> Path:
        return self.directory / "cells" / f"{cell}.json"

    def recording_path(self, cell: str) -> Path:
        return self.directory / "transcripts" / cell

    def truth_path(self, cell: str) -> Path:
        return self.directory / "truth" / cell

    def write(self, record: CellRecord) -> CellRecord:
        """Store one finished cell, and return what was stored: a record with values that cannot be has failed."""
        try:
            text = record_text(record, self.made)
        except ValueError as error:
            planned = Planned.of(self.cells[record.cell], record.cell)
            record = planned.record(self.suite.name, f"the cell's record breaks a rule: {error}; mend the plugin")
            text = record_text(record, self.made)
        write_atomic(self.record_path(record.cell), text, linked=False)
        return record


@contextlib.contextmanager
def open_run(
    directory: Path,
    suite: Suite,
    cells: Sequence[Cell],
    data: Mapping[str, str] | None = None,
    threads: int = 1,
    shard: Shard | None = None,
) -> Iterator[RunStore]:
    """Lock ``directory`` for a run of ``suite``, creating or continuing it.

    Args:
        data: digest of the content of each data set; a run continues on the same content only.
        threads: CPU threads of a cell, if the run is new.
        shard: the part of the cells to compute; other processes may then compute others in the same folder.

    Raises:
        FglauditError: if another run is using the folder, it holds something else, or it cannot be written.
    """
    directory = run_folder(directory)
    check_ours(directory)
    if not directory.is_dir():
        make_folder(directory)
    with contextlib.ExitStack() as held_long:
        if shard is not None:
            held_long.enter_context(held(directory, shard))
        with contextlib.ExitStack() as held_now:
            held_now.enter_context(folder_lock(directory, 0 if shard is None else WAIT_SECONDS))
            if shard is None:
                check_none(directory)
            store = _prepared(directory, suite, cells, data, threads, shard)
            if shard is None:
                held_long.push(held_now.pop_all())
        try:
            yield store
        finally:
            store.remove_spool()


def _prepared(
    directory: Path,
    suite: Suite,
    cells: Sequence[Cell],
    data: Mapping[str, str] | None,
    threads: int,
    shard: Shard | None,
) -> RunStore:
    """Create or continue the run in ``directory``, whose lock is held."""
    named = {cell.hash(): cell for cell in cells}
    made = Made(__version__, threads, dict(data or {}), dict(registry.loaded_files()))
    store = RunStore(directory, suite, named, made, shard=shard)
    old = _continue(store)
    store.remove_spool()  # of a run that was killed
    if shard is None:  # what others write just now lies there too
        for folder in (directory, directory / "cells"):
            for left in folder.glob(f"{TEMPORARY}*.tmp"):
                left.unlink(missing_ok=True)
    sources = _sources(cells)
    if old is None or old.sources != sources:  # a plan of thousands of cells takes seconds to make
        plan = tuple(Planned.of(cell, name) for name, cell in named.items())
        write_atomic(directory / "run.json", Manifest(suite.name, store.made, plan, sources).text())
    for name in ("cells", "transcripts"):
        make_folder(directory / name)
    write_atomic(directory / "suite.yaml", yaml.safe_dump(suite.resolved(), sort_keys=False, width=120))
    make_folder(directory / SPOOL, 0o700)  # last: whoever gets the store removes it, and nothing before may leave it
    make_folder(store.spool, 0o700)
    return store


def _sources(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the SHA-256 of the source file of every protocol, defense (each part of a stack) and attack, by "kind
    name"."""
    found: dict[str, Any] = {}
    for cell in cells:
        parts = getattr(cell.defense, "parts", ())
        used: list[tuple[str, Any]] = [
            ("protocol", cell.protocol),
            ("defense", cell.defense),
            *(("attack", a) for a in cell.attacks),
        ]
        used += [("defense", part) for part in parts if isinstance(part, Defense)]
        found |= {f"{kind} {type(plugin).name}": plugin for kind, plugin in used}
    return {name: registry.source_digest(plugin) for name, plugin in sorted(found.items())}


def _continue(store: RunStore) -> Manifest | None:
    """Take over what an earlier part of the run was made with; refuse another run. Return ``run.json`` where it is
    whole."""
    manifest = None
    directory = store.directory
    rule = f"{RULE}; {directory} holds"
    if not os.path.lexists(directory / "run.json"):
        old = _made_of_records(store)
    else:
        try:
            manifest = read_manifest(directory)
        except FglauditError as error:
            store.notes.append(f"{error}; written anew")
            old = _made_of_records(store)
        else:
            old = manifest.made
            if grows(directory, store.suite, list(store.cells), manifest, sharded=store.shard is not None):
                manifest = None  # the plan is written anew
    if old is None:
        return None
    if old.version != __version__:
        raise FglauditError(f"{rule} a run of fglaudit {old.version}, this is {__version__}; {FIX}")
    for file, digest in old.plugins.items():
        if store.made.plugins.get(file, digest) != digest:
            raise FglauditError(f"{rule} results of an earlier text of {file}; {FIX}")
    for name, digest in old.data.items():
        if store.made.data.get(name, digest) != digest:
            raise FglauditError(f"{rule} results on other content of {name}; {FIX}")
    store.made = old
    return manifest


def _made_of_records(store: RunStore) -> Made | None:
    """Return what the first readable record was made with: ``run.json`` is lost, and its cells must not be mixed with
    others."""
    for cell in store.cells:
        with contextlib.suppress(FglauditError):
            return read_stored(store.record_path(cell))[1]
    return None
