"""A server that has the same round of training repeated: after each of the first means it sends the first model again.

Clients then start every one of these rounds from the same model, and what they upload changes by dropout alone. Where
some are missing in a round (they drop out, or are not sampled), means over different senders of the same uploads
differ by single uploads, which secure aggregation hides: the attack ``differenced-updates`` solves for them. The server
needs nothing that the protocol does not show it: who sent, and the means.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.errors import require_least
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Trained
from fglaudit.parties.base import Behaviour, Conduct
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN


@dataclass(frozen=True)
class RepeatModels(Behaviour):
    """The server has the first round repeated.

    Attributes:
        rounds: how many rounds start from the first model.
    """

    name: ClassVar[str] = "repeat-models"
    shown: ClassVar[tuple[str, ...]] = ("rounds",)

    rounds: int = 32

    def __post_init__(self) -> None:
        require_least(self, rounds=2)

    @property
    def least_rounds(self) -> int:
        return self.rounds

    def unsupported(self, protocol: FederatedProtocol, graph: FederatedGraph) -> str | None:
        if not isinstance(protocol, FedGCN):
            return f"repeat-models sends FedGCN's first model again, not that of {protocol.name}"
        if protocol.rounds < self.rounds:
            return f"repeat-models repeats {self.rounds} rounds; there are {protocol.rounds}"
        return None

    def shortened(self, rounds: int, of: int) -> RepeatModels:
        return dataclasses.replace(self, rounds=rounds) if 2 <= rounds < self.rounds <= of else self

    def bind(self, protocol: FederatedProtocol, graph: FederatedGraph, rng: torch.Generator) -> Conduct:
        return _Repeating(self.rounds)


@dataclass
class _Repeating(Conduct):
    rounds: int
    first: list[Tensor] = field(default_factory=list)

    def goes_on(self, batch: MessageBatch, arrived: Payload, channel: Any) -> Payload:
        if not isinstance(batch.payload, ModelUpdate) or bool((batch.senders != SERVER).any()):
            return arrived
        if not self.first:
            self.first.append(batch.payload.vector[:1].clone())
        if not 0 < batch.round < self.rounds:
            return arrived
        model = ModelUpdate(self.first[0].expand(len(batch.senders), -1))
        again: Payload = channel.send(dataclasses.replace(batch, payload=model))
        return again

    def remarks(self, trained: Trained) -> tuple[str, ...]:
        return (
            f"repeat-models: for {self.rounds} rounds clients receive the first model again after every mean:"
            " whoever compares two models, notices",
        )
