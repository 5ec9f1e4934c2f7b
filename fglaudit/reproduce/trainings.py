"""One training behind one figure of a paper."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, FederatedProtocol, Trained
from fglaudit.partition import PartitionSpec
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Training:
    """What is trained, on what."""

    dataset: DatasetSpec
    partition: PartitionSpec
    protocol: FederatedProtocol
    defense: Defense = field(default_factory=NoDefense)


@dataclass(frozen=True)
class Measured:
    """One figure of ours.

    Attributes:
        value: in the unit that the paper prints.
        seconds: CPU seconds that it took on this machine; with a GPU, those of the process that waits for it.
        gigabytes_up, gigabytes_down: sent by all clients, and to all clients.
        device: the kind that trained: "cpu" or "cuda".
        matrix: of pairs of clients [K, K] that the figure was computed from; None where there is none.
    """

    value: float
    seconds: float = 0.0
    gigabytes_up: float = 0.0
    gigabytes_down: float = 0.0
    device: str = CPU.type
    matrix: Tensor | None = field(default=None, compare=False)


def trained(
    training: Training, seed: int, *, partition: int | None = None, device: torch.device = CPU
) -> tuple[Trained, Measured]:
    """Train once with the random streams that an audit cell of this seed uses; ``Measured.value`` is left at 0.

    Args:
        partition: the seed of partition and split, if it is another one.
    """
    whole = training.dataset.load()
    of_clients = derive(seed if partition is None else partition, "partition")
    graph = training.partition.apply(whole, training.dataset, of_clients)
    return trained_on(graph, training.protocol, training.defense, seed, device)


def trained_on(
    graph: FederatedGraph, protocol: FederatedProtocol, defense: Defense, seed: int, device: torch.device = CPU
) -> tuple[Trained, Measured]:
    """Train once on ``graph``, as :func:`trained` does."""
    protocol.check(graph)
    session = defense.bind(protocol.context(graph))
    channel = RecordingChannel(session, graph.num_clients, derive(seed, "defense"))
    start = time.process_time()
    outcome = protocol.train(graph, channel, rng=derive(seed, "train"), device=device)
    up, down = (float(count.sum().item()) / 1e9 for count in (channel.bytes_up, channel.bytes_down))
    return outcome, Measured(0.0, time.process_time() - start, up, down, device.type)
