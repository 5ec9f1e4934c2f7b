"""A protocol that sends the same rows in every round, and defenses that hide them in each message but not in all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import Additive, Fact, Field
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Defense, DefenseSession, FederatedProtocol, Trained
from fglaudit.payloads import SERVER, MessageBatch, Payload, RawFeatures
from fglaudit.rng import split
from fglaudit.structure import Attention, Structure


@dataclass(frozen=True)
class Repeating(FederatedProtocol):
    """Every client sends its rows to the server in every round.

    Attributes:
        rounds: how often.
    """

    name: ClassVar[str] = "repeating"
    emits: ClassVar[tuple[type[Payload], ...]] = (RawFeatures,)

    rounds: int = 2

    @property
    def num_rounds(self) -> int:
        return self.rounds

    def structure(self, graph: FederatedGraph) -> Structure:
        return Structure((Attention(degree=1, domain=1.0, rows="as-held"),))

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        for round in range(1, self.rounds + 1):
            for k, client in enumerate(clients):
                splits = torch.tensor([0, len(client.nodes)])
                sent = RawFeatures(client.nodes, client.x.float())
                channel.send(MessageBatch(round, torch.tensor([k]), torch.tensor([SERVER]), sent, splits))
            channel.round_done(round, self.rounds)
        half = torch.full((self.rounds,), 0.5)
        return Trained(half[:, None].expand(-1, graph.num_clients), half, {"weight": torch.zeros(1)})


Mask = Callable[[int, Tensor, Tensor], Tensor]
"""From a round, a row [F] for every node of a batch, drawn once, and values of that shape to what is sent."""
RULES: dict[str, Mask] = {
    "difference": lambda round, mask, x: mask + x if round % 2 else mask,
    "sum": lambda round, mask, x: x - mask if round % 2 else x + mask,
    "shares": lambda round, mask, x: x - mask if round % 2 else mask,
}


@dataclass(frozen=True)
class Repeated(Defense):
    """Hide rows behind a mask that is drawn once for a node, or behind fresh noise.

    Attributes:
        kind: a name of ``RULES``, or "noise".
        std: of mask or noise.
        stated: whether noise is stated.
    """

    name: ClassVar[str] = "repeated"

    kind: str = "difference"
    std: float = 10.0
    stated: bool = False

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self)


class _Session(DefenseSession):
    def __init__(self, defense: Repeated) -> None:
        self.defense = defense
        self.masks: dict[int, Tensor] = {}

    def changes(self, payload: type[Payload]) -> bool:
        return payload is RawFeatures

    def facts(self) -> tuple[Fact, ...]:
        stated = (Additive(Field("RawFeatures", "x"), "gaussian", self.defense.std),)
        return stated if self.defense.stated else ()

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if not isinstance(batch.payload, RawFeatures):
            return batch.payload
        x, sender = batch.payload.x, int(batch.senders[0].item())
        if self.defense.kind == "noise":
            return dataclasses.replace(batch.payload, x=x + self.defense.std * torch.randn(x.shape, generator=rng))
        if sender not in self.masks:
            drawn = torch.randn(x.shape, generator=split(rng, f"mask of {sender}"))
            self.masks[sender] = self.defense.std * drawn
        return dataclasses.replace(batch.payload, x=RULES[self.defense.kind](batch.round, self.masks[sender], x))
