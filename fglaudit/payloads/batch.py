"""Messages: a payload with its round, senders and receivers, and what a sealed one shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.payloads.base import Payload
from fglaudit.shapes import Parties, RowIds, RowSplits

SERVER = -1
"""The server's number among parties; clients are 0 ... K-1."""


@dataclass(frozen=True)
class Ciphertexts(Payload):
    """What a sealed message shows without the key: which rows it has, and how many bytes.

    Attributes:
        nodes: the node each row belongs to [rows], where the sealed payload names it in the clear; otherwise -1.
        size: bytes [rows] of ciphertext per row: those of the message, shared out evenly over its rows.
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    size: Float[Tensor, " rows"]


@dataclass(frozen=True)
class MessageBatch:
    """P messages of one kind sent in one step.

    Attributes:
        round: 0 for pre-training, then 1, 2, ...
        senders, receivers: party numbers [P] (``SERVER`` or a client).
        payload: see module docstring.
        splits: [P + 1] row offsets for ragged payloads, else None.
    """

    round: int
    senders: Parties
    receivers: Parties
    payload: Payload
    splits: RowSplits | None = None

    def __post_init__(self) -> None:
        if self.payload.ragged != (self.splits is not None):
            raise FglauditError(
                f"a ragged payload needs splits and a plain one must not have them; got {type(self.payload).__name__} "
                f"{'without' if self.splits is None else 'with'} splits"
            )
        entries = {name: shape[0] for name, shape in self.payload.shapes().items()}
        expected = int(self.splits[-1].item()) if self.splits is not None else len(self.senders)
        if any(count != expected for count in entries.values()) or len(self.senders) != len(self.receivers):
            raise FglauditError(
                f"all fields of a batch share their leading axis; expected {expected} entries, got {entries} "
                f"for {len(self.senders)} senders and {len(self.receivers)} receivers"
            )

    def entry_messages(self) -> Tensor:
        """Message index of every entry of the payload's leading axis."""
        count = len(self.senders)
        if self.splits is None:
            return torch.arange(count)
        return torch.repeat_interleave(torch.arange(count), self.splits.diff())

    def bytes_per_message(self) -> Tensor:
        """Exact wire bytes of every message [P]."""
        entry = self.payload.bytes_per_entry()
        clear = torch.full((len(self.senders),), entry) if self.splits is None else self.splits.diff() * entry
        return clear + self.sealed_bytes()

    def sealed_bytes(self) -> Tensor:
        """Bytes of ciphertext in every message [P]."""
        splits = torch.arange(len(self.senders) + 1) if self.splits is None else self.splits
        total = torch.zeros(len(self.senders), dtype=torch.long)
        for value in self.payload.sealed_fields().values():
            total += value.sealed.wire_bytes(splits)
        return total

    def ciphertexts(self) -> MessageBatch:
        """Return what the batch, which has sealed fields, shows without a key."""
        splits = torch.arange(len(self.senders) + 1) if self.splits is None else self.splits
        rows = splits.diff()
        size = torch.repeat_interleave(self.sealed_bytes() / rows.clamp(min=1), rows)
        nodes = getattr(self.payload, "nodes", torch.full((len(size),), -1))
        return MessageBatch(self.round, self.senders, self.receivers, Ciphertexts(nodes, size), splits)

    def select_entries(self, keep: Tensor) -> MessageBatch:
        """Return the batch with only the entries of the mask ``keep`` [entries]; messages of a ragged payload that lose
        all of theirs stay."""
        if self.splits is None:
            return self.select(keep.cpu())
        counts = torch.bincount(self.entry_messages()[keep.cpu()], minlength=len(self.senders))
        splits = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        payload = self.payload.select(keep.nonzero().squeeze(1))
        return MessageBatch(self.round, self.senders, self.receivers, payload, splits)

    def select(self, messages: Tensor) -> MessageBatch:
        """Return the batch with only the messages where the mask ``messages`` [P] is true."""
        entries = messages[self.entry_messages()].nonzero().squeeze(1)
        splits = None
        if self.splits is not None:
            splits = torch.cat([self.splits.new_zeros(1), self.splits.diff()[messages].cumsum(0)])
        payload = self.payload.select(entries)
        return MessageBatch(self.round, self.senders[messages], self.receivers[messages], payload, splits)
