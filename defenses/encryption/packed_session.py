"""What defenses that encrypt do with messages: rows are packed and sealed, passed on to their receivers, and opened."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fglaudit.context import Aggregate, Context
from fglaudit.facts import Fact, Sealed
from fglaudit.he.ckks import Ckks
from fglaudit.he.codec import Codec
from fglaudit.he.fixed_point import FixedPoint
from fglaudit.he.layout import Layout
from fglaudit.he.packed_rows import PackedRows, seal_rows
from fglaudit.he.row_sealer import RowSealer
from fglaudit.he.weighted_rows import WeightedRows
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import MessageBatch, Payload, PayloadName, payload_types
from fglaudit.sealing import sealed_tensor

_LARGEST_FLOODING = 8.0
"""Standard deviations of the flooding noise that are taken for its largest value."""


@dataclass(frozen=True)
class PackedSealer:
    """How one payload is sealed.

    Attributes:
        fixed_point: how numbers become whole ones; None where the codec seals real numbers.
    """

    codec: Codec
    layout: Layout
    summands: torch.Tensor
    fixed_point: FixedPoint | None = None

    @property
    def errors(self) -> tuple[float, float]:
        """Standard deviation of the flooding noise, and the largest error of a sum by its encoding."""
        if isinstance(self.codec, Ckks):
            return self.codec.flooding, _LARGEST_FLOODING * self.codec.flooding
        if self.fixed_point is None or self.fixed_point.whole:
            return 0.0, 0.0
        return 0.0, float(1 / self.fixed_point.scale.min()) / 2 * float(self.summands.max())


class PackedDefense(Defense):
    """What defenses have in common whose server adds ciphertexts.

    Attributes:
        on: names of the payloads that are sealed; none: all that can be.
    """

    on: tuple[PayloadName, ...]

    def payloads(self, context: Context) -> tuple[type[Payload], ...]:
        """Return what is sealed."""
        if self.on:
            return payload_types(self.on)
        return tuple(payload for payload in context.aggregates if self.refusal(payload, context) is None)

    def unsupported(self, context: Context) -> str | None:
        asked = payload_types(self.on) or tuple(dict.fromkeys([*context.aggregates, *context.readers]))
        if not asked:
            return f"{context.protocol}'s clients send the server nothing that it computes with"
        reasons = [reason for payload in asked if (reason := self.refusal(payload, context)) is not None]
        return "; ".join(reasons) or None if self.on or not self.payloads(context) else None

    @abstractmethod
    def refusal(self, payload: type[Payload], context: Context) -> str | None:
        """Return why ``payload`` cannot be sealed, or None."""


def useless_padding(aggregate: Aggregate, name: str) -> str | None:
    """Return why sending every row hides nothing of payload ``name``, or None."""
    if len(torch.unique(aggregate.rows)) == len(aggregate.rows):
        return None
    return (
        f"padding hides nothing where rows of {name} have several receivers: which client gets a row shows its"
        " neighbours"
    )


def padded_bounds(aggregate: Aggregate, clients: int, padded: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return bounds on rows and on their summands; with ``padded`` the same for all, every client sending every row."""
    largest, summands = aggregate.largest, aggregate.summands
    assert largest is not None
    if padded:
        largest = torch.full_like(largest, float(largest.max()))
        summands = torch.full_like(summands, clients)
    return largest, summands


class PackedSession(DefenseSession):
    """Seals what clients send, leaves it sealed at the server, and opens it for its receivers.

    Args:
        scheme: its name in facts.
        sealers: by payload.
        aggregates: of these payloads.
        promise: the guarantee.
        padded: whether every client sends every row.
        holders: how many clients must pool their keys to open a message.
    """

    def __init__(
        self,
        scheme: str,
        sealers: Mapping[type[Payload], PackedSealer | RowSealer],
        aggregates: Mapping[type[Payload], Aggregate],
        promise: Guarantee,
        *,
        padded: bool,
        holders: int = 1,
    ) -> None:
        self.scheme, self.sealers, self.aggregates, self.promise = scheme, sealers, aggregates, promise
        self.padded, self.holders = padded, holders

    def seals(self, payload: type[Payload]) -> bool:
        return payload in self.sealers

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        """Encrypt what clients send; libraries draw their randomness themselves, ``rng`` is not used."""
        sealer = self.sealers[type(batch.payload)]
        if isinstance(sealer, RowSealer):
            return sealer.seal(batch)
        tensors = batch.payload.tensors()
        splits = torch.arange(len(batch.senders) + 1) if batch.splits is None else batch.splits.cpu()
        rows = tensors.get("nodes", torch.zeros(int(splits[-1]), dtype=torch.long)).cpu()
        fields = {name: value for name, value in tensors.items() if value.is_floating_point()}
        (name, value), *others = fields.items()
        assert not others, "one field of each payload is sealed"
        packed = seal_rows(
            sealer.codec,
            sealer.layout,
            sealer.summands,
            rows,
            value.flatten(1).cpu(),
            splits,
            padded=self.padded,
        )
        shape = (len(packed.rows), *value.shape[1:])
        tensors[name] = sealed_tensor(packed, shape, value.dtype)
        if "nodes" in tensors:
            tensors["nodes"] = packed.rows
            splits = torch.cat(
                [splits.new_zeros(1), torch.bincount(packed.origin, minlength=len(batch.senders)).cumsum(0)]
            )
        payload = type(batch.payload).from_tensors(tensors)
        return dataclasses.replace(batch, payload=payload, splits=None if batch.splits is None else splits)

    def forward(self, batch: MessageBatch) -> MessageBatch:
        """Choose the ciphertexts that every receiver gets: those with its own rows, and no others."""
        splits = torch.arange(len(batch.senders) + 1) if batch.splits is None else batch.splits.cpu()
        tensors = dict(batch.payload.tensors())
        for name, value in batch.payload.sealed_fields().items():
            if isinstance(value.sealed, PackedRows):
                tensors[name] = sealed_tensor(
                    value.sealed.addressed(splits, batch.receivers), tuple(value.shape), value.dtype
                )
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(tensors))

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        """Decrypt. Rows of zeros are padding and are left out of padded messages to the server."""
        tensors = dict(batch.payload.tensors())
        for name, value in batch.payload.sealed_fields().items():
            assert isinstance(value.sealed, PackedRows | WeightedRows)
            tensors[name] = value.opened(value.sealed.opened())
            if isinstance(value.sealed, WeightedRows):
                continue
            if self.padded and value.sealed.entries is None and batch.splits is not None:
                return _without_zeros(batch, tensors, tensors[name].flatten(1).any(1))
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(tensors))

    def facts(self) -> tuple[Fact, ...]:
        """Of every sealed payload and what the server makes of it: the errors of encoding and flooding."""
        found: list[Fact] = []
        for payload, sealer in self.sealers.items():
            flooding, rounding = sealer.errors
            found += [
                Sealed(target, self.scheme, readers=self.holders, flooding=flooding, rounding=rounding)
                for target in self.aggregates[payload].targets(payload)
            ]
        return tuple(found)

    def readers(self, batch: MessageBatch) -> int:
        return self.holders

    def guarantee(self) -> Guarantee:
        return self.promise


def _without_zeros(batch: MessageBatch, tensors: dict[str, torch.Tensor], keep: torch.Tensor) -> MessageBatch:
    kept = torch.bincount(batch.entry_messages()[keep], minlength=len(batch.senders))
    payload = type(batch.payload).from_tensors({name: value[keep] for name, value in tensors.items()})
    return dataclasses.replace(batch, payload=payload, splits=torch.cat([kept.new_zeros(1), kept.cumsum(0)]))
