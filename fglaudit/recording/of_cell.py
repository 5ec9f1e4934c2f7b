"""A cell of a suite, trained and recorded: data, partition, what its observers see and its attacks read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from fglaudit.context import Context
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.nn.torch_settings import check_torch_settings
from fglaudit.observers import expand
from fglaudit.partition import partition_facts
from fglaudit.recording.of_training import Kept, Progress, record_training
from fglaudit.recording.recording import Recording
from fglaudit.rng import derive
from fglaudit.scoring.truth import GroundTruth
from fglaudit.suite.cell import Cell, identity, training
from fglaudit.wire.channel import Keep


class NotApplicableError(FglauditError):
    """The cell's defense, or its behaviour, does not serve its protocol; the message is the reason."""


def unserved(cell: Cell, graph: FederatedGraph) -> str | None:
    """Return why ``cell`` is not computed on ``graph``, its split: its behaviour, or its defense, does not serve the
    protocol. None where both do.

    Raises:
        FglauditError: the protocol cannot be trained on it.
    """
    try:
        _served(cell, _claimed(cell, graph))
    except NotApplicableError as error:
        return str(error)
    return None


def record(
    cell: Cell,
    *,
    device: torch.device | None = None,
    progress: Progress | None = None,
    folder: Path | None = None,
    key: bytes = b"",
    whole: Graph | None = None,
    notes: tuple[str, ...] = (),
) -> tuple[Recording, GroundTruth]:
    """Train ``cell`` and record what its observers see and its attacks read; everything if it says ``record: all``.

    Args:
        device: to train on; the CPU by default.
        progress: called with (round, rounds) during training.
        folder: where messages are spooled (they can be larger than memory); None keeps them in memory.
        key: that makes training and noise secret, see :func:`fglaudit.rng.derive`.
        whole: the cell's data set, where it is at hand; None: it is loaded.
        notes: what had to be changed in ``whole``, e.g. directed edges; of a data set that is loaded here they are its
            own.

    Raises:
        NotApplicableError: the defense does not serve the protocol.
        FglauditError: errors of data, partition or training, or torch is set to compute otherwise.
    """
    check_torch_settings()
    if whole is None:
        whole, loaded = cell.dataset.load_with_notes()
        notes = (*notes, *loaded)
    graph = _claimed(cell, cell.partition.apply(whole, cell.dataset, derive(cell.seed, "partition")))
    keep = _kept(cell, graph, folder)  # before the context: messages that are too many are refused at once
    context = _served(cell, graph)
    recording, truth = record_training(
        graph,
        cell.protocol,
        cell.defense,
        context=context,
        seed=cell.seed,
        keep=keep,
        empirical=cell.empirical,
        device=device,
        progress=progress,
        key=key,
        behaviour=cell.behaviour,
    )
    recording = dataclasses.replace(
        recording,
        description=training(cell),
        columns={**recording.columns, **identity(cell), "clients": graph.num_clients},
        partition=partition_facts(graph, whole),
        notes=(*notes, *recording.notes),
    )
    return recording, truth


def _claimed(cell: Cell, graph: FederatedGraph) -> FederatedGraph:
    """Return the graph that ``cell`` trains on: ``graph``, its split, as its server claims it.

    Raises:
        NotApplicableError: the server cannot break the protocol's rules in this way.
        FglauditError: the protocol cannot be trained on it.
    """
    if cell.behaviour is not None:
        if (why := cell.behaviour.unsupported(cell.protocol, graph)) is not None:
            raise NotApplicableError(why)
        graph = cell.behaviour.claims(graph)
    cell.protocol.check(graph)
    return graph


def _served(cell: Cell, graph: FederatedGraph) -> Context:
    """Return what the defense of ``cell`` is bound to on ``graph``, which it trains on.

    Raises:
        NotApplicableError: the defense does not serve the protocol.
    """
    context = cell.protocol.context(graph)
    if (why := cell.defense.unsupported(context)) is not None:
        raise NotApplicableError(why)
    return context


def _kept(cell: Cell, graph: FederatedGraph, folder: Path | None) -> Kept:
    """Return what is kept of the training for the observers and attacks of ``cell``."""
    observers = [member for spec in cell.observers for member in expand(spec, graph.num_clients)[0]]
    everything = cell.record == "all"
    messages = Keep() if everything else Keep.for_attacks(observers, cell.attacks, cell.protocol.num_rounds)
    cell.protocol.check_messages(graph, messages.wants)
    clients = None if everything else {k for o in observers for k in o.clients}
    return Kept(messages, clients, {spec.auxiliary for spec in cell.observers}, folder)
