"""What travels. Protocols and attacks meet in these types and nowhere else.

A payload is a frozen dataclass whose fields are tensors. It comes in one of two forms:

* plain: every field has the leading axis P, one entry per message of the batch;
* ragged (``ragged = True``): every field has a leading axis of rows, and the batch's ``splits`` [P + 1] say which rows belong
  to which message, because messages differ in length.

Wire bytes are the bytes of the tensors as sent; framing (a few bytes per message) is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from fglaudit.errors import FglauditError, unknown
from fglaudit.shapes import Parties, RowIds, RowSplits, RowValues

SERVER = -1
"""The server's number among parties; clients are 0 ... K-1."""


P = TypeVar("P", bound="Payload")


class Payload:
    """Base of all payloads. Subclasses are frozen dataclasses of tensors; naming one registers it for loading transcripts."""

    ragged: ClassVar[bool] = False
    registry: ClassVar[dict[str, type[Payload]]] = {}

    def __init_subclass__(cls) -> None:
        Payload.registry[cls.__name__] = cls

    def tensors(self) -> dict[str, Tensor]:
        """Fields by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_tensors(cls: type[P], tensors: dict[str, Tensor]) -> P:
        """Rebuild from :meth:`tensors`."""
        return cls(**tensors)

    def select(self: P, index: Tensor) -> P:
        """Return the payload with ``index`` taken along the leading axis of every field."""
        return type(self).from_tensors({name: value[index] for name, value in self.tensors().items()})

    def bytes_per_entry(self) -> int:
        """Wire bytes of one entry of the leading axis."""
        return sum(value[:1].numel() * value.element_size() for value in self.tensors().values())


def payload_type(name: str) -> type[Payload]:
    """Return the payload class called ``name``."""
    if name not in Payload.registry:
        raise unknown("payload", name, Payload.registry)
    return Payload.registry[name]


@dataclass(frozen=True)
class NeighborSums(Payload):
    """Weighted sums of neighbour features, one row per node.

    Upwards: row (m, i) is ``sum over neighbours j of i at client m of A_ij x_j``; downwards: ``sum over all j``.

    Attributes:
        nodes: the node each sum belongs to [rows], 8 bytes each on the wire.
        sums: [rows, F].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    sums: RowValues


@dataclass(frozen=True)
class ModelUpdate(Payload):
    """All weights of a model as one vector per message [P, D]; the layout is public (``PublicFacts.layout``)."""

    vector: Float[Tensor, "messages parameters"]


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
        entries = {name: value.shape[0] for name, value in self.payload.tensors().items()}
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
        if self.splits is None:
            return torch.full((len(self.senders),), entry)
        return self.splits.diff() * entry

    def select(self, messages: Tensor) -> MessageBatch:
        """Return the batch with only the messages where the mask ``messages`` [P] is true."""
        entries = messages[self.entry_messages()].nonzero().squeeze(1)
        splits = None
        if self.splits is not None:
            splits = torch.cat([self.splits.new_zeros(1), self.splits.diff()[messages].cumsum(0)])
        payload = self.payload.select(entries)
        return MessageBatch(self.round, self.senders[messages], self.receivers[messages], payload, splits)
