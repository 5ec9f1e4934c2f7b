"""One training behind one figure of a paper."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.interfaces import Defense, FederatedProtocol, Trained
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

CPU = torch.device("cpu")


class Partition(Protocol):
    """What splits a graph over clients; equal ones give equal splits."""

    def apply(self, graph: Graph, dataset: DatasetSpec, rng: torch.Generator) -> FederatedGraph:
        """Split ``graph``, with the masks that ``dataset`` asks for."""


@dataclass(frozen=True)
class Training:
    """What is trained, on what."""

    dataset: DatasetSpec
    partition: Partition
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
        sent: bytes by payload; a message between two clients counts once.
        matrix: of pairs of clients [K, K] that the figure was computed from; None where there is none.
    """

    value: float
    seconds: float = 0.0
    gigabytes_up: float = 0.0
    gigabytes_down: float = 0.0
    device: str = CPU.type
    sent: Mapping[type[Payload], int] = field(default_factory=dict)
    matrix: Tensor | None = field(default=None, compare=False)

    @property
    def megabytes(self) -> float:
        """All that was sent."""
        return sum(self.sent.values()) / 1e6

    @property
    def megabytes_beside_models(self) -> float:
        """All that was sent but models."""
        return self.megabytes - self.sent.get(ModelUpdate, 0) / 1e6


@lru_cache(maxsize=1)
def trained(
    training: Training, seed: int, *, partition: int | None = None, device: torch.device = CPU
) -> tuple[Trained, Measured]:
    """Train once with the random streams that an audit cell of this seed uses; ``Measured.value`` is left at 0.

    The last training is kept, for rows that follow one another and ask different figures of it.

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
    """Train once on ``graph``, as :func:`trained` does; that it sends very many bytes is a warning before it does."""
    protocol.check(graph)
    if large := protocol.large_messages(graph):
        warnings.warn(large, stacklevel=2)
    channel = channel_of(graph, protocol, defense, seed)
    start = time.process_time()
    outcome = protocol.train(graph, channel, rng=derive(seed, "train"), device=device)
    return outcome, cost(channel, time.process_time() - start, device)


def channel_of(graph: FederatedGraph, protocol: FederatedProtocol, defense: Defense, seed: int) -> RecordingChannel:
    """Return a channel that counts and records nothing."""
    return RecordingChannel(defense.bind(protocol.context(graph)), graph.num_clients, derive(seed, "defense"))


def cost(channel: RecordingChannel, seconds: float, device: torch.device = CPU) -> Measured:
    """Return what passed ``channel`` in ``seconds``; the value is left at 0."""
    up, down = (float(count.sum().item()) / 1e9 for count in (channel.bytes_up, channel.bytes_down))
    return Measured(0.0, seconds, up, down, device.type, dict(channel.bytes_of))
