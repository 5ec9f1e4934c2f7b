"""What several tests of the watched hooks share."""

from __future__ import annotations

import torch

from fglaudit.facts import (
    Field,
)
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

CLIENTS = 4


def models(round: int, width: int = 1200) -> MessageBatch:
    vectors = torch.randn(CLIENTS, width, generator=derive(7, "models", round)) * torch.linspace(0.1, 3, width)
    return MessageBatch(round, torch.arange(CLIENTS), torch.full((CLIENTS,), SERVER), ModelUpdate(vectors))


def caught(channel: RecordingChannel) -> set[type | str]:
    """Return payloads, or the kinds of targets, of which something is unstated."""
    targets = [entry.target for entry in channel.unstated]
    return {target.payload if isinstance(target, Field) else type(target) for target in targets}
