"""Fields of payloads as rows of entries, so that maps of rows can be learned and undone whatever the payload is.

An axis as wide as the feature rows is taken for the entries, wherever it stands; else the last one. A field of one
axis has one entry per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.payloads import SERVER, MessageBatch


@dataclass(frozen=True)
class Entries:
    """One floating-point field of a batch.

    Attributes:
        rows: [n, D].
        message: the entry of the payload's leading axis that each row belongs to [n].
        senders: of each row [n].
        shape: of the field with its entries moved to the end.
        axis: where the entries stood.
    """

    rows: Tensor
    message: Tensor
    senders: Tensor
    shape: tuple[int, ...]
    axis: int

    def restored(self, rows: Tensor, like: Tensor) -> Tensor:
        """Return ``rows`` [n, D] in the shape and type of the field ``like``."""
        return rows.reshape(self.shape).movedim(-1, self.axis).reshape(like.shape).to(like.dtype)


def entries(batch: MessageBatch, name: str, features: int) -> Entries:
    """Return the field ``name`` of ``batch`` as rows of entries; ``features`` is the width of feature rows."""
    value = batch.payload.tensors()[name].double()
    flat = value[:, None] if value.dim() == 1 else value
    axis = next((a for a in range(1, flat.dim()) if flat.shape[a] == features), flat.dim() - 1)
    moved = flat.movedim(axis, -1)
    per_entry = moved[0].numel() // max(1, moved.shape[-1]) if len(moved) else 1
    message = torch.arange(len(moved)).repeat_interleave(per_entry)
    senders = batch.senders[batch.entry_messages()][message]
    return Entries(moved.reshape(-1, moved.shape[-1]), message, senders, tuple(moved.shape), axis)


def float_fields(batch: MessageBatch) -> tuple[str, ...]:
    """Return the names of the floating-point fields."""
    return batch.payload.real_fields()


def with_rows(batch: MessageBatch, rows: Mapping[str, Tensor], features: int) -> MessageBatch:
    """Return ``batch`` with the rows of entries [n, D] of some fields replaced."""
    like = batch.payload.tensors()
    changed = {name: entries(batch, name, features).restored(value, like[name]) for name, value in rows.items()}
    payload = batch.payload.with_fields(changed)
    return MessageBatch(batch.round, batch.senders, batch.receivers, payload, batch.splits)


def upwards(batch: MessageBatch) -> bool:
    """Whether clients sent it."""
    return bool((batch.senders != SERVER).all())
