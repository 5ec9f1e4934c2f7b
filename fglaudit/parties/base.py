"""What a party that breaks the rules can do: claim another graph, and send other messages than the protocol says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

from fglaudit.files.field_types import CheckedFields
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Trained
from fglaudit.payloads import MessageBatch, Payload


class Conduct:
    """A behaviour in one training run."""

    def sends(self, batch: MessageBatch) -> MessageBatch:
        """Return what is sent in place of ``batch``, which the protocol would send."""
        return batch

    def goes_on(self, batch: MessageBatch, arrived: Payload, channel: Any) -> Payload:
        """Send more through ``channel`` (:class:`fglaudit.interfaces.Channel`) after ``batch``, as the protocol has it,
        was sent and has ``arrived``; return what receivers go on with."""
        return arrived

    def remarks(self, trained: Trained) -> tuple[str, ...]:
        """Return what the other parties could notice, in words, for the record."""
        return ()


class Behaviour(CheckedFields, ABC):
    """How one party breaks the rules. Subclasses are frozen dataclasses; their fields are what a suite may set."""

    name: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = ()

    @property
    def least_clients(self) -> int:
        """How many clients a partition must have for this behaviour to exist."""
        return 1

    @property
    def least_rounds(self) -> int:
        """How many rounds a protocol must train for this behaviour to exist."""
        return 1

    def unsupported(self, protocol: FederatedProtocol, graph: FederatedGraph) -> str | None:
        """Return why this behaviour is impossible here, or None. The cell is then `not-applicable`."""
        return None

    def shortened(self, rounds: int, of: int) -> Behaviour:
        """Return the behaviour in the first ``rounds`` of a training ``of`` so many, for a forecast."""
        return self

    def claims(self, graph: FederatedGraph) -> FederatedGraph:
        """Return the graph as the party makes the others believe it to be."""
        return graph

    @abstractmethod
    def bind(self, protocol: FederatedProtocol, graph: FederatedGraph, rng: torch.Generator) -> Conduct:
        """Return the behaviour in one training run, which says what others could notice; ``rng`` draws what is random
        about it."""


class ActiveChannel:
    """A channel (:class:`fglaudit.interfaces.Channel`) on which one party sends what ``conduct`` says. What arrives,
    what is recorded and what clients train on is what was really sent."""

    def __init__(self, channel: Any, conduct: Conduct) -> None:
        self._channel, self._conduct = channel, conduct

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send(self, batch: MessageBatch) -> Payload:
        """Send what the conduct makes of ``batch``, and what it adds."""
        arrived = self._channel.send(self._conduct.sends(batch))
        return self._conduct.goes_on(batch, arrived, self._channel)
