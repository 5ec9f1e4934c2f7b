"""One cell from suite to record: recorded, attacked, scored."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from fglaudit.attacking import run_attacks
from fglaudit.execution.rows import blank_record, cell_record
from fglaudit.finding import CellRecord, Status
from fglaudit.recording import NotApplicableError, Progress, record
from fglaudit.scoring.score import Scorer
from fglaudit.suite.cell import Cell


def run_cell(
    cell: Cell,
    *,
    suite: str,
    device: torch.device,
    progress: Progress | None = None,
    recording_dir: Path | None = None,
    truth_dir: Path | None = None,
) -> CellRecord:
    """Train one cell, record it, attack it, and return its record.

    An attack that fails becomes a `failed` row; errors of data, partition or training are raised, since then nothing
    was measured at all.

    Args:
        progress: called with (round, rounds) during training.
        recording_dir, truth_dir: where recording and truth are kept, apart from each other, if the cell says
            ``record: all``.
    """
    kept = recording_dir if cell.record == "all" else None
    # Recorded messages can be larger than memory: they lie on disk, for good or until the cell is done.
    with tempfile.TemporaryDirectory(prefix="fglaudit-") as spool:
        try:
            recording, truth = record(cell, device=device, progress=progress, folder=kept or Path(spool))
        except NotApplicableError as error:
            return blank_record(cell, suite, Status.NOT_APPLICABLE, str(error))
        if kept is not None:
            recording.save(kept)
            if truth_dir is not None:
                truth.save(truth_dir)
        scorer = Scorer(truth)
        outputs = run_attacks(
            recording, cell.observers, cell.attacks, device=device, nothing_to_ask=scorer.nothing_to_ask
        )
        measured = [scorer.measure(output) for output in outputs]
    return cell_record(cell.hash(), suite, cell.description(), recording, measured)
