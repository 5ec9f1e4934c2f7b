"""Fields of payloads as rows of entries, so that maps of rows can be learned and undone whatever the payload is.

An axis as wide as the feature rows is taken for the entries, wherever it stands; else the last one. A field of one
axis has one entry per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
    moved, axis = _entries_last(batch.payload.tensors()[name].double(), features)
    per_entry = moved[0].numel() // max(1, moved.shape[-1]) if len(moved) else 1
    message = torch.arange(len(moved)).repeat_interleave(per_entry)
    senders = batch.senders[batch.entry_messages()][message]
    return Entries(moved.reshape(-1, moved.shape[-1]), message, senders, tuple(moved.shape), axis)


def _entries_last(value: Tensor, features: int) -> tuple[Tensor, int]:
    """Return the field with its entries moved to the end [P, ..., D], as a view, and where they stood."""
    flat = value[:, None] if value.dim() == 1 else value
    axis = next((a for a in range(1, flat.dim()) if flat.shape[a] == features), flat.dim() - 1)
    return flat.movedim(axis, -1), axis


def width_of(value: Tensor, features: int) -> int:
    """Return how many entries a row of the field has."""
    return _entries_last(value, features)[0].shape[-1]


def mapped(value: Tensor, features: int, change: Callable[[Tensor], Tensor], most: int) -> Tensor:
    """Return the field with ``change`` applied to its rows of entries [n, D], about ``most`` numbers at a time: copies
    in double precision of a large field take longer than the map itself."""
    made = torch.empty_like(value, memory_format=torch.contiguous_format)
    source, target = (_entries_last(field, features)[0] for field in (value, made))
    if source.dim() == 2:
        source, target = source[:, None], target[:, None]
    lines, per_line = source.shape[1], max(1, math.prod(source.shape[2:]))
    wide, step = max(1, most // per_line), max(1, most // max(1, lines * per_line))
    for low in range(0, len(source), step):
        for left in range(0, lines, wide):
            at = slice(low, low + step), slice(left, left + wide)
            rows = source[at].double()
            target[at] = change(rows.reshape(-1, rows.shape[-1])).reshape(rows.shape).to(made.dtype)
    return made


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
