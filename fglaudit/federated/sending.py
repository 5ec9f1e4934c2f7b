"""Payloads sent through a channel: what arrives is of the kind that was sent."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from fglaudit.interfaces import Channel
from fglaudit.payloads import SERVER, MessageBatch, Payload

P = TypeVar("P", bound=Payload)


def send(
    channel: Channel, round: int, senders: Tensor, receivers: Tensor, payload: P, splits: Tensor | None = None
) -> P:
    """Send ``payload`` from ``senders`` [P] to ``receivers`` [P], see :class:`MessageBatch`; return what arrives."""
    arrived = channel.send(MessageBatch(round, senders, receivers, payload, splits))
    assert isinstance(arrived, type(payload))
    return arrived


def to_server(channel: Channel, round: int, senders: Tensor, payload: P, splits: Tensor | None = None) -> P:
    """Have the clients ``senders`` [P] send ``payload`` to the server; return what it receives."""
    return send(channel, round, senders, torch.full_like(senders, SERVER), payload, splits)


def from_server(channel: Channel, round: int, receivers: Tensor, payload: P, splits: Tensor | None = None) -> P:
    """Have the server send ``payload`` to the clients ``receivers`` [P]; return what they receive."""
    return send(channel, round, torch.full_like(receivers, SERVER), receivers, payload, splits)
