"""What the channels of replays have in common: the defense prepares clients, and nothing else is done to what is
sent."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.facts import Additive, first
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession, LocalUpdate
from fglaudit.payloads import Payload


class PassingChannel:
    """The hooks of :class:`fglaudit.interfaces.Channel` but for ``wants``, ``send`` and ``round_done``."""

    def __init__(self, session: DefenseSession, rng: torch.Generator) -> None:
        self.session = session
        self.rng = rng

    def prepare(self, client: ClientGraph) -> ClientGraph:
        return self.session.prepare(client, self.rng)

    def prepares(self) -> bool:
        return self.session.prepares()

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        return self.session.merge(center, neighbor)

    def noise(self, payload: type[Payload]) -> Additive | None:
        return first(self.session.facts(), Additive, payload)

    def local_update(self) -> LocalUpdate | None:
        return None

    def seals(self, payload: type[Payload]) -> bool:
        return False
