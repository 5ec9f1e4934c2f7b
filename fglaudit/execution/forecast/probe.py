"""The first rounds of a cell, trained to see what all of them will take.

A cell is recorded as a run records it, but for a few rounds, without replays and without attacks. How long a round
takes, what its messages weigh and which attacks have something to read is then known; the rest is multiplication.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from fglaudit.attacking import unsuitable
from fglaudit.graph import Graph
from fglaudit.interfaces import Attack, FederatedProtocol
from fglaudit.observers import expand
from fglaudit.payloads import Ciphertexts, is_repeated, payload_type
from fglaudit.recording import NotApplicableError, Recording, record
from fglaudit.scoring.score import Scorer
from fglaudit.suite.cell import Cell
from fglaudit.view import Observer, View
from fglaudit.wire.channel import Keep

ROUNDS = 3
"""That are trained at most; of a protocol with a stage before its rounds all of that stage too."""


@dataclass(frozen=True)
class Probe:
    """What the first rounds of a cell say of all of them; seconds are those of one core.

    Attributes:
        training: seconds, of one training.
        trainings: how often it is trained at most: attacks that got nothing are asked again under a weakened defense.
        attacks: by (observer with what it knows, attack) that has something to read, the bytes read, over the
            observer's members.
        released: bytes that clients send in the first round and before it; 0 where no guarantee is put to the test.
        memory: bytes at the peak of training.
        disk: bytes of all messages that are recorded.
    """

    training: float
    trainings: int
    attacks: dict[tuple[str, str], int]
    released: int
    memory: int
    disk: int


def probe(cell: Cell, whole: Graph | None = None) -> Probe | str:
    """Train the first rounds of ``cell``, which is one of built-in plugins; why it will not be trained, if so.

    Raises:
        FglauditError: errors of data, partition or training.
    """
    if not hasattr(cell.protocol, "rounds"):
        return f"{type(cell.protocol).name} has no field rounds"
    forget_peak()
    few = min(ROUNDS, int(cell.protocol.rounds))
    short: FederatedProtocol = dataclasses.replace(cast(Any, cell.protocol), rounds=few)
    behaviour = cell.behaviour and cell.behaviour.shortened(few, int(cell.protocol.rounds))
    start, stamps = time.process_time(), list[float]()
    try:
        recording, truth = record(
            dataclasses.replace(cell, protocol=short, behaviour=behaviour, empirical=False),
            progress=lambda round, rounds: stamps.append(time.process_time()),
            whole=whole,
        )
    except NotApplicableError as error:
        return f"not applicable: {error}"
    passed = time.process_time() - start
    memory = peak()
    last = stamps[-few:]
    each = (last[-1] - last[0]) / (len(last) - 1) if len(last) > 1 else passed / short.num_rounds
    weak = cell.defense.weakened(0.5) != cell.defense
    span = Span(short.num_rounds, cell.protocol.num_rounds)
    entries = recording.transcript.entries
    stored = [(e.payload, e.round, len(recording.transcript.stored(i))) for i, e in enumerate(entries)]
    everybody = [Observer(wire=True)]
    promises = cell.empirical and recording.verdict.word.value != "none"
    return Probe(
        training=passed + each * (span.rounds - span.trained),
        trainings=2 if weak else 1,
        attacks=_read(cell, recording, Scorer(truth), span),
        released=int(recording.columns["bytes_up"]) // (short.num_rounds + 1) if promises else 0,
        memory=memory - sum(size for *_, size in stored),
        disk=span.scaled(stored, everybody, None if cell.record == "all" else cell.attacks, recording.public.sealed),
    )


@dataclass(frozen=True)
class Span:
    """The rounds of a training: ``trained`` of ``rounds``."""

    trained: int
    rounds: int

    def scaled(
        self,
        sizes: Iterable[tuple[str, int, int]],
        observers: Sequence[Observer],
        attacks: Sequence[Attack] | None,
        sealed: Container[str],
    ) -> int:
        """Return the bytes over all rounds of (payload, round, bytes), kept for ``attacks``; None: all are kept. Rounds
        that were not trained are taken to be as the last one that was. ``sealed``: payloads that clients send so."""
        keep = Keep() if attacks is None else Keep.for_attacks(observers, attacks, self.rounds)
        total = 0
        for payload, number, size in sizes:
            kind = payload_type(payload)
            wanted = [kind is Ciphertexts or keep.wants(kind, n, sealed=payload in sealed) for n in self._like(number)]
            total += size * sum(wanted)
        return total

    def _like(self, number: int) -> range:
        """Return the rounds that the messages of round ``number`` stand for."""
        return range(number, (self.rounds if number == self.trained else number) + 1)


def _read(cell: Cell, recording: Recording, scorer: Scorer, span: Span) -> dict[tuple[str, str], int]:
    """Return the bytes that every attack will read, by observer; nothing where it does not apply. Members of an
    observer are taken to be alike."""
    read = {}
    for spec in cell.observers:
        members, pooled = expand(spec, recording.public.num_clients)
        view = recording.view(members[0])
        for attack in cell.attacks:
            if scorer.nothing_to_ask(type(attack).quantity, members, pooled) or unsuitable(attack, view):
                continue
            each = span.scaled(_sizes(attack, view), members[:1], [attack], recording.public.sealed)
            read[f"{spec.name} {spec.knowledge}".rstrip(), type(attack).name] = len(members) * each
    return read


def _sizes(attack: Attack, view: View) -> Iterator[tuple[str, int, int]]:
    """Yield payload, round and bytes of what ``attack`` may read in ``view``."""
    for kind in type(attack).reads():
        for batch in view.messages.of(kind):
            yield kind.__name__, batch.round, sum(_stored(value) for value in batch.payload.tensors().values())


def _stored(value: torch.Tensor) -> int:
    return (value[:1] if is_repeated(value) else value).nbytes


def forget_peak() -> None:
    """Let the peak of this process's memory begin anew, where the system can do that (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak() -> int:
    """Return the largest number of bytes in memory since :func:`forget_peak`."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit if os.name == "posix" else 0
