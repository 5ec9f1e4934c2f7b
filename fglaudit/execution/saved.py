"""Attacks on recordings that a run kept (``record: all``), without training again: ``RUN/attacks/NAME``.

The folder holds records as a run's own does, so that ``fglaudit report`` reads it; nothing of the run is written over.
Where the run kept no truth, attacks run unscored and their results are stored instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from fglaudit import __version__, registry
from fglaudit.attacking import run_attacks
from fglaudit.errors import FglauditError
from fglaudit.execution.exit_code import ExitCode, Trouble
from fglaudit.execution.folder.plan import Planned
from fglaudit.execution.folder.run_folder import READ, run_folder
from fglaudit.execution.folder.stored_record import Made, record_text
from fglaudit.execution.folder.stored_run import Manifest, read_manifest, read_record
from fglaudit.execution.rows import cell_record
from fglaudit.execution.weakened import row_of, through_planted_rows
from fglaudit.files.own import check_writable, make_folder, write_atomic, write_new
from fglaudit.finding import CellRecord, Status
from fglaudit.interfaces import Attack
from fglaudit.observers import ObserverSpec, expand
from fglaudit.plugins.modules import load_files
from fglaudit.recording import Recording, protocol_of
from fglaudit.scoring.output import Output
from fglaudit.scoring.score import Measurement, Scorer
from fglaudit.scoring.truth import GroundTruth
from fglaudit.suite.cell import describe

RECORDINGS, TRUTHS, ATTACKS = "transcripts", "truth", "attacks"
INTO = "attacks are written into the folder of the run: make it writable, or copy the run elsewhere"
UNSCORED = "unscored: no truth was kept beside this recording; the results are stored as they are"


@dataclass(frozen=True)
class Source:
    """Where saved recordings lie.

    Attributes:
        run: the run's folder, or the recording's own where it lies alone.
        recordings: the folders of the recordings.
        suite: name of the run's suite.
    """

    run: Path
    recordings: tuple[Path, ...]
    suite: str

    def truth(self, recording: Path) -> Path | None:
        """Return the folder of the truth about a recording, None where there is none."""
        folder = self.run / TRUTHS / recording.name
        return folder if folder.is_dir() else None


def find(path: Path) -> Source:
    """Return the recordings in ``path``, a run or a single recording.

    Raises:
        FglauditError: if there are none.
    """
    path = run_folder(path, READ)
    if (path / "recording.json").is_file():
        run = path.parent.parent
        if path.parent.name == RECORDINGS and (run / "run.json").is_file():
            return Source(run, (path,), read_manifest(run).suite)
        return Source(path, (path,), "")
    manifest = read_manifest(path)
    folders = [path / RECORDINGS / planned.cell for planned in manifest.plan]
    found = tuple(folder for folder in folders if (folder / "recording.json").is_file())
    if not found:
        raise FglauditError(
            f"only a run that kept whole recordings can be attacked again; {path} kept none; put record: all into its"
            f" suite and run that into another folder (fglaudit run SUITE --out {path}-all)"
        )
    return Source(path, found, manifest.suite)


def stored_records(source: Source) -> tuple[list[CellRecord], list[Trouble]]:
    """Return the records that the run itself made of the cells of ``source``, and what is wrong with those that cannot
    be read: one of them may say that a guarantee is refuted. A recording that lies alone has none."""
    records, unread = [], []
    for recording in source.recordings:
        path = source.run / "cells" / f"{recording.name}.json"
        if not path.exists():
            continue
        try:
            records.append(read_record(path))
        except FglauditError as error:
            unread.append(Trouble(ExitCode.FAILED, f"what the run found out about its guarantee is lost: {error}"))
    return records, unread


def attack_saved(
    source: Source,
    observers: Sequence[ObserverSpec],
    attacks: Sequence[Attack],
    name: str,
    device: torch.device,
    announce: Callable[[str], None] = lambda text: None,
    *,
    made: Sequence[CellRecord] = (),
    trust_plugins: bool = False,
) -> tuple[Path, list[CellRecord]]:
    """Run ``attacks`` on every recording of ``source`` and write the records into ``RUN/attacks/NAME``.

    Args:
        announce: called with a line per recording.
        made: the run's own records, see :func:`stored_records`; what they know of these attacks is not asked again.
        trust_plugins: run Python files that the recordings name, as they were in the run.

    Raises:
        FglauditError: the name is taken or no name of a folder, an observer knows what was not recorded, or a file that
            the recordings name is not trusted, or has changed.
    """
    if not name or name in (".", "..") or "/" in name or "\\" in name:
        raise FglauditError(f"--name names a folder inside the run's {ATTACKS}/; got {name!r}; use letters and digits")
    folder = source.run / ATTACKS / name
    if folder.exists():
        raise FglauditError(f"attacks on a saved run never replace others; {folder} exists; use another --name")
    above = source.run / ATTACKS
    check_writable(above if above.is_dir() else source.run, INTO)  # before attacks that take minutes
    if trust_plugins and (source.run / "run.json").is_file():  # they must be those that the run was made with
        made_with = read_manifest(source.run).made.plugins
        load_files({path: digest for path, digest in made_with.items() if Path(path).is_file()})
    records, before = [], {record.cell: record for record in made}
    for number, path in enumerate(source.recordings, 1):
        recording = Recording.load(path, trust_plugins=trust_plugins)
        for spec in observers:
            expand(spec, recording.public.num_clients)  # who is not there is refused before anything is announced
        announce(f"attacking {number} of {len(source.recordings)}: {_trained(recording) or path}")
        record, results = _attacked(recording, source, path, before.get(path.name), observers, attacks, device)
        store_record(folder, record)
        for file, tensors in results.items():
            make_folder(folder / "results")
            write_new(folder / "results" / f"{record.cell}-{file}.safetensors", save(tensors), 0o644)
        records.append(record)
    store_plan(folder, source.suite, records)
    return folder, records


def _trained(recording: Recording) -> str:
    """Return what was trained, in words; empty where a recording does not say so."""
    columns = recording.columns
    if "seed" not in columns:
        return ""
    named = (("dataset", "dataset_args"), ("partition",), ("protocol", "protocol_args"), ("defense", "defense_args"))
    parts = [[str(columns[name]) for name in names if columns.get(name)] for names in named]
    words = (f"{first}({', '.join(rest)})" if rest else first for first, *rest in parts if first)
    return f"{' '.join(words)} seed {columns['seed']}"


def store_record(folder: Path, record: CellRecord) -> None:
    """Write one record into ``folder``, as a run does.

    Raises:
        FglauditError: it holds values that cannot be.
    """
    make_folder(folder / "cells")
    write_atomic(folder / "cells" / f"{record.cell}.json", _text(record, _made()), linked=False)


def store_plan(folder: Path, suite: str, records: Sequence[CellRecord]) -> None:
    """Write ``run.json`` for records that are all there, so that ``fglaudit report`` reads the folder."""
    plan = tuple(Planned.like(record) for record in records)
    write_atomic(folder / "run.json", Manifest(suite, _made(), plan).text())


def _made() -> Made:
    return Made(__version__, torch.get_num_threads(), {}, dict(registry.loaded_files()))


def _attacked(
    recording: Recording,
    source: Source,
    path: Path,
    before: CellRecord | None,
    observers: Sequence[ObserverSpec],
    attacks: Sequence[Attack],
    device: torch.device,
) -> tuple[CellRecord, dict[str, dict[str, Tensor]]]:
    truth = source.truth(path)
    scorer = None if truth is None else Scorer(GroundTruth.load(truth, protocol_of(recording.description)))
    outputs = run_attacks(
        recording,
        observers,
        attacks,
        device=device,
        nothing_to_ask=None if scorer is None else scorer.nothing_to_ask,
    )
    measured = [_unscored(output) if scorer is None else scorer.measure(output) for output in outputs]
    measured = through_planted_rows(outputs, measured, device, told_by_run(before, observers, attacks))
    described = {
        **recording.description,
        "observers": [spec.name for spec in observers],
        "attacks": [type(attack).name for attack in attacks],
    }
    record = cell_record(path.name, source.suite, described, recording, measured)
    results = {} if scorer is not None else dict(_results(outputs))
    return record, results


def told_by_run(
    record: CellRecord | None, observers: Sequence[ObserverSpec], attacks: Sequence[Attack]
) -> dict[tuple[str, str, str], str]:
    """Return what the run found out of its rows by training again under a weakened defense, for equal observers and
    attacks: planted rows would ask the same question in another way, and might have another answer."""
    if record is None:
        return {}
    plain = json.loads(json.dumps([[describe(spec) for spec in observers], [describe(attack) for attack in attacks]]))
    seen = [s for s, d in zip(observers, plain[0], strict=True) if d in record.description.get("observers", [])]
    run = [a for a, d in zip(attacks, plain[1], strict=True) if d in record.description.get("attacks", [])]
    equal = {(spec.name, spec.knowledge, type(attack).name) for spec in seen for attack in run}
    return {row_of(f): f.succeeds_weakened for f in record.findings if f.succeeds_weakened and row_of(f) in equal}


def _unscored(output: Output) -> Measurement:
    if not output.measured:
        return Measurement(output.blank)
    if output.flaw is not None:
        return Measurement(replace(output.blank, status=Status.BROKEN_ATTACK, reason=output.flaw))
    return Measurement(replace(output.blank, reason=UNSCORED))


def _results(outputs: Sequence[Output]) -> list[tuple[str, dict[str, Tensor]]]:
    """Return the results of unscored outputs as tensors, by a name for their file."""
    named = []
    for output in outputs:
        for view, result in zip(output.views, output.results, strict=False):
            held = {f.name: getattr(result, f.name) for f in fields(result)}
            tensors = {key: value.contiguous() for key, value in held.items() if isinstance(value, Tensor)}
            observer = view.observer.name.replace(":", "-")
            named.append((f"{observer}-{output.blank.attack}", tensors))
    return named


def _text(record: CellRecord, made: Made) -> str:
    try:
        return record_text(record, made)
    except ValueError as error:
        raise FglauditError(f"an attack's figures must be possible ones; {record.cell}: {error}; mend it") from error
