"""A data set loaded to see whether it can be: in a process of its own where it might be too large for this machine."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.size import expected_size, in_words, machine_memory
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.child import start_child
from fglaudit.graph import Graph
from fglaudit.interruption import leave_to_parent

LOADED_HERE = 2**26
"""Bytes up to which a data set is loaded in this process: a process of its own takes seconds to start."""
UNFOLDS = 100
"""By how much a file of one's own may grow when it is read: sparse binary features compress as much."""


@dataclass(frozen=True)
class Loaded:
    """What is remembered of a data set that loads.

    Attributes:
        digest: over its content, see :func:`digest`.
        notes: what had to be changed in it, e.g. directed edges.
        clients: how many it names itself.
        answers: to what was asked of it while it was loaded.
    """

    name: str
    nodes: int
    digest: str
    notes: tuple[str, ...]
    clients: int | None = None
    answers: tuple[Any, ...] = ()


@dataclass(frozen=True)
class TooLarge:
    """Why a data set does not fit into the memory of this machine."""

    reason: str


Question = Callable[[Graph, DatasetSpec], Iterable[Any]]
"""Its answers can be pickled: they may come from a process of its own."""
Look = Callable[[DatasetSpec, Question | None], Loaded]


def look(spec: DatasetSpec, question: Question | None = None) -> Loaded:
    """Load a data set, ask it ``question``, and forget it.

    Raises:
        FglauditError: missing or corrupt files, or a user's graph that breaks a rule.
        MemoryError: it does not fit.
    """
    graph, notes = spec.load_with_notes()
    answers = () if question is None else tuple(question(graph, spec))
    return Loaded(graph.name, graph.num_nodes, digest(graph), notes, graph.num_clients, answers)


def digest(graph: Graph) -> str:
    """Return 16 hex digits over features, labels, edges, public splits and own clients."""
    content = hashlib.blake2b(digest_size=8)
    for name in ("x", "y", "edge_index", "train", "val", "test", "clients"):
        if (tensor := getattr(graph, name)) is not None:
            content.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            content.update(tensor.contiguous().numpy().tobytes())
    return content.hexdigest()


def look_safely(spec: DatasetSpec, question: Question | None = None) -> Loaded | TooLarge:
    """Load a data set, in a process of its own unless it is small: what does not fit costs no more than that process.

    Raises:
        FglauditError: as :func:`look`.
    """
    size = expected_size(spec)
    if size.bytes > machine_memory():
        return TooLarge(without_memory(spec, "before loading its data"))
    if size.bytes * (1 if spec.path is None else UNFOLDS) > LOADED_HERE:
        return _apart(spec, question)
    try:
        return look(spec, question)
    except (MemoryError, RuntimeError) as error:
        return _too_large(spec, error)


def without_memory(spec: DatasetSpec, doing: str, cause: str = "") -> str:
    """Return the reason of a cell that ran out of memory while ``doing`` something."""
    return f"out of memory {doing}{f' ({cause})' if cause else ''}: {estimate(spec)}"


def estimate(spec: DatasetSpec) -> str:
    """Return what is known of the memory that a cell on ``spec`` needs, and what to do about it, in words."""
    return (
        f"features, labels and edges of its data set take {expected_size(spec)}, loading and training a multiple, and"
        f" this machine has {in_words(machine_memory())}; use fewer --jobs, fewer observers or a smaller data set"
    )


def is_memory(error: BaseException) -> bool:
    """Whether memory ran out, also where torch says so in words alone."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def _too_large(spec: DatasetSpec, error: MemoryError | RuntimeError) -> TooLarge:
    if not is_memory(error):
        raise error
    return TooLarge(without_memory(spec, "while loading its data", type(error).__name__))


def _apart(spec: DatasetSpec, question: Question | None) -> Loaded | TooLarge:
    process, here = start_child(_child, spec, look, registry.loaded_files(), _packed(question))
    try:
        found = here.recv()
    except EOFError:
        process.join()
        return TooLarge(without_memory(spec, "while loading its data", f"the process ended with {process.exitcode}"))
    finally:
        process.kill()
        process.join()
        here.close()
    if isinstance(found, FglauditError):
        raise found
    assert isinstance(found, (Loaded, TooLarge))
    return found


def _packed(question: Question | None) -> bytes:
    """Return ``question`` for a process of its own; no question where a plugin in it cannot be sent there, as the rows
    of its cells will say."""
    try:
        return pickle.dumps(question)
    except Exception:
        return pickle.dumps(None)


def _unpacked(packed: bytes) -> Question | None:
    try:
        question: Question | None = pickle.loads(packed)
    except (Exception, SystemExit):  # a plugin's module cannot be imported there: as above
        return None
    return question


def _child(
    connection: Connection, spec: DatasetSpec, looking: Look, plugin_files: Mapping[str, str], question: bytes
) -> None:
    leave_to_parent()
    registry.load_files(plugin_files)  # before the question is read, which may be about a protocol of one of them
    found: Loaded | TooLarge | FglauditError
    try:
        found = looking(spec, _unpacked(question))
    except FglauditError as error:
        found = FglauditError(str(error))
    except (MemoryError, RuntimeError) as error:
        found = _too_large(spec, error)
    connection.send(found)
