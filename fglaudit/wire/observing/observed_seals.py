"""Compares messages that were sealed and opened again with what entered the seal."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.facts import Sealed
from fglaudit.facts.explaining import Expected, unexplained
from fglaudit.facts.residuals import Spending
from fglaudit.payloads import MessageBatch


def strange_seal(before: MessageBatch, opened: MessageBatch, stated: Sealed | None) -> str | None:
    """Return in words how ``opened`` is not ``before`` within the stated rounding and flooding, or None.

    A scheme may add rows of zeros, or leave them out, where messages are ragged.
    """
    if stated is None:
        return "it is sealed and no fact says so"
    rows, entered, left = _aligned(before, opened)
    if rows is None:
        return "sealing changed how many rows a message has"
    for name, value in before.payload.tensors().items():
        after = opened.payload.tensors()[name]
        if not value.is_floating_point():
            continue
        full = _placed(value, entered, rows)
        got = _placed(after.to(value.device, value.dtype), left, rows)
        if full.shape != got.shape:
            return f"opened values have shape {tuple(got.shape)} in place of {tuple(full.shape)}"
        expected = stated.applied(Expected.of(full))
        if (why := unexplained(expected, got, Spending())) is not None:
            return f"opened again: {why}"
    return None


def _aligned(before: MessageBatch, opened: MessageBatch) -> tuple[int | None, Tensor, Tensor]:
    """Return how many rows there are in all, and where those of both batches stand among them."""
    nodes, others = (batch.payload.tensors().get("nodes") for batch in (before, opened))
    first, second = before.entry_messages(), opened.entry_messages()
    if nodes is None or others is None:
        return (len(first) if len(first) == len(second) else None), torch.arange(len(first)), torch.arange(len(second))
    pairs = torch.cat([torch.stack([first, nodes.cpu()]), torch.stack([second, others.cpu()])], 1)
    found, place = torch.unique(pairs, dim=1, return_inverse=True)
    return found.shape[1], place[: len(first)], place[len(first) :]


def _placed(value: Tensor, place: Tensor, rows: int) -> Tensor:
    flat = value.flatten(1) if value.dim() > 1 else value.unsqueeze(1)
    # Added up, so that a row that comes twice is not hidden behind the other.
    return flat.new_zeros(rows, flat.shape[1]).index_add(0, place.to(flat.device), flat)
