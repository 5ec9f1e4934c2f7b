"""What the server's last message brought each client: changes are clipped around it."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.payloads import MessageBatch, is_repeated


class LastReceived:
    """By payload the receivers and the values that they got last."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Tensor, Tensor]] = {}

    def remember(self, batch: MessageBatch) -> None:
        """Keep a copy of the only field of a message of the server."""
        (value,) = batch.payload.tensors().values()
        kept = value[:1].clone().expand_as(value) if is_repeated(value) else value.clone()
        self._held[type(batch.payload).__name__] = (batch.receivers.cpu(), kept)

    def of(self, batch: MessageBatch) -> Tensor | None:
        """Return what the senders of ``batch`` received last [P, ...]; None before the first message."""
        name = type(batch.payload).__name__
        if name not in self._held:
            return None
        receivers, value = self._held[name]
        order = receivers.argsort()
        place = torch.searchsorted(receivers[order], batch.senders.cpu()).clamp(max=len(order) - 1)
        return value[order[place].to(value.device)]
