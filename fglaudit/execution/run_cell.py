"""One cell from suite to record: recorded, attacked, scored."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from fglaudit.attacking import run_attacks
from fglaudit.conformance.of_runs import checked
from fglaudit.doing import tell
from fglaudit.execution.rows import attacked_record, blank_record
from fglaudit.execution.weakened import with_weakened
from fglaudit.files.own import make_folder, remove_tree
from fglaudit.finding import CellRecord, Status
from fglaudit.graph import Graph
from fglaudit.recording import NotApplicableError, Progress, Recording, record
from fglaudit.scoring.score import Scorer
from fglaudit.scoring.truth import GroundTruth
from fglaudit.suite.cell import Cell


@contextlib.contextmanager
def _spool(folder: Path | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="fglaudit-") as temporary:
            yield Path(temporary)
        return
    make_folder(folder.parent, 0o700)
    remove_tree(folder)
    make_folder(folder, 0o700)
    try:
        yield folder
    finally:
        remove_tree(folder)


def run_cell(
    cell: Cell,
    *,
    suite: str,
    device: torch.device,
    progress: Progress | None = None,
    recording_dir: Path | None = None,
    truth_dir: Path | None = None,
    spool_dir: Path | None = None,
    key: bytes = b"",
) -> CellRecord:
    """Train one cell, record it, attack it, and return its record.

    An attack that fails becomes a `failed` row; errors of data, partition or training are raised, since then nothing
    was measured at all.

    Args:
        progress: called with (round, rounds) during training.
        recording_dir, truth_dir: where recording and truth are kept, apart from each other, if the cell says
            ``record: all``.
        spool_dir: a folder that does not exist yet, for the messages while the cell is computed. By default one of the
            system's temporary folders, which a killed process leaves behind.
        key: of the noise, see :func:`fglaudit.rng.derive`.
    """
    kept = recording_dir if cell.record == "all" else None
    # Recorded messages can be larger than memory: they lie on disk, for good or until the cell is done.
    with _spool(spool_dir) as spool:
        try:
            recording, truth = record(cell, device=device, progress=progress, folder=kept or spool, key=key)
        except NotApplicableError as error:
            return blank_record(cell, suite, Status.NOT_APPLICABLE, str(error))
        recording = checked(recording, cell.protocol, truth.graph)
        if kept is not None:
            recording.save(kept)
            if truth_dir is not None:
                truth.save(truth_dir)
        return attacked(cell, recording, truth, suite=suite, device=device, key=key)


def attacked(
    cell: Cell,
    recording: Recording,
    truth: GroundTruth,
    *,
    suite: str,
    device: torch.device,
    key: bytes = b"",
    whole: Graph | None = None,
) -> CellRecord:
    """Attack what was recorded of a cell, ask rule 4 of attacks that got nothing, and return the cell's record.

    Args:
        key, whole: what it was recorded with, see :func:`run_cell` and :func:`fglaudit.recording.record`.
    """
    scorer = Scorer(truth)
    outputs = run_attacks(recording, cell.observers, cell.attacks, device=device, nothing_to_ask=scorer.nothing_to_ask)
    measured = []
    for output in outputs:
        tell(f"scoring {output.blank.attack} by {output.blank.observer}")
        measured.append(scorer.measure(output))
    measured = with_weakened(cell, outputs, measured, device, key, whole)
    return attacked_record(cell, suite, recording, outputs, measured)
