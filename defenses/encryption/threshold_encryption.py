"""Threshold encryption: the server adds ciphertexts that no coalition opens unless all clients are in it.

The same packed BFV as :mod:`fglaudit.defenses.encryption.homomorphic_encryption`, without its one secret key: every
client holds a share (:mod:`fglaudit.he.threshold_bfv`), by OpenFHE in an interpreter of its own
(:mod:`fglaudit.he.openfhe_process`). So the server together with a client, or a client that taps the wire, reads what
that client sent and got, and nothing else; under a shared key they read everything. Every ciphertext is opened for one
client, so that one partial decryption of it, that client's, never travels; a row with several receivers is encrypted
for each of them.

What stays as it is: a client reads the sums of its own rows; which rows are sent shows edges, unless ``padded``;
models travel in the clear. One client that drops out leaves all sums closed. Clients and the server keep to the
protocol: a server that asked for the opening of a message in place of a sum would get it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Context
from fglaudit.defenses.encryption.packed_session import (
    PackedDefense,
    PackedSealer,
    PackedSession,
    padded_bounds,
    useless_padding,
)
from fglaudit.errors import FglauditError
from fglaudit.he.fixed_point import FixedPoint
from fglaudit.he.layout import Layout
from fglaudit.he.openfhe_process import missing
from fglaudit.he.packed_rows import PackedRows
from fglaudit.he.threshold_bfv import SLOT_BITS, WIDTHS, ThresholdBfv
from fglaudit.interfaces import DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, Payload, PayloadName, payload_types

MOST_CLIENTS = 100
"""Every client makes a partial decryption of every ciphertext, half a megabyte each."""


class ThresholdSession(PackedSession):
    """Counts keys and partial decryptions, beside what travels sealed."""

    def __init__(
        self,
        sealers: Mapping[type[Payload], PackedSealer],
        aggregates: Mapping[type[Payload], Aggregate],
        promise: Guarantee,
        *,
        padded: bool,
        clients: int,
    ) -> None:
        super().__init__("threshold-bfv", sealers, aggregates, promise, padded=padded, holders=clients)
        self._bytes = torch.zeros(2, clients, dtype=torch.long)
        for sealer in sealers.values():
            assert isinstance(sealer.codec, ThresholdBfv)
            self._bytes += 2 * sealer.codec.key_bytes  # the key goes round twice: to be made, and to be known to all

    def forward(self, batch: MessageBatch) -> MessageBatch:
        """Choose the ciphertexts that every receiver gets, and let the others send their partial decryptions."""
        passed = super().forward(batch)
        for value in passed.payload.sealed_fields().values():
            rows = value.sealed
            assert isinstance(rows, PackedRows) and isinstance(rows.codec, ThresholdBfv)
            splits = torch.arange(len(batch.senders) + 1) if batch.splits is None else batch.splits.cpu()
            ciphertexts = rows.wire_bytes(splits) // rows.codec.parameters.full_bytes
            clients = passed.receivers != SERVER
            self._shares(passed.receivers[clients], ciphertexts[clients] * rows.codec.share_bytes)
        return passed

    def _shares(self, receivers: Tensor, size: Tensor) -> None:
        """Count a partial decryption of ``size`` bytes [P] by every client but the receiver, to it."""
        up, down = self._bytes
        up += size.sum()
        up.index_add_(0, receivers, -size)
        down.index_add_(0, receivers, (len(down) - 1) * size)

    def overhead(self) -> tuple[Tensor, Tensor]:
        up, down = self._bytes.clone()
        self._bytes.zero_()
        return up, down


@dataclass(frozen=True)
class ThresholdEncryption(PackedDefense):
    """Encrypt what the server only adds up, under a key of which every client holds a share.

    Attributes:
        bits: of a fixed-point number, sums included; one of 4, 8, 14, 18, 28. Whole numbers get as many as their bound
            needs.
        padded: every client sends every row, so that presence and width reveal nothing.
        on: names of the payloads; empty: all that can be encrypted.
    """

    name: ClassVar[str] = "threshold-encryption"
    shown: ClassVar[tuple[str, ...]] = ("padded",)

    bits: int = 14
    padded: bool = False
    on: tuple[PayloadName, ...] = ()

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise FglauditError(
                f"fields of a slot have {', '.join(map(str, WIDTHS))} bits; got {self.bits}; use e.g. bits: 14"
            )
        payload_types(self.on)

    def unsupported(self, context: Context) -> str | None:
        if (reason := super().unsupported(context)) is not None:
            return reason
        if not 2 <= context.num_clients <= MOST_CLIENTS:
            return (
                f"keys of 2 to {MOST_CLIENTS} clients are made together here; got {context.num_clients}; use"
                " homomorphic-encryption"
            )
        return missing()

    def refusal(self, payload: type[Payload], context: Context) -> str | None:
        aggregate, name = context.aggregates.get(payload), payload.__name__
        if aggregate is None:
            return context.unsealable(payload)
        if aggregate.weighted or aggregate.largest is None:
            return (
                f"packed ciphertexts hold plain sums up to a public bound; {name} is"
                f" {'multiplied by other numbers' if aggregate.weighted else 'of no known size'}; use"
                " homomorphic-encryption with scheme: ckks"
            )
        return useless_padding(aggregate, name) if self.padded else None

    def bind(self, context: Context) -> DefenseSession:
        if (reason := self.unsupported(context)) is not None:
            raise FglauditError(f"threshold encryption cannot serve: {reason}")
        sealers = {payload: self._sealer(context.aggregates[payload], context) for payload in self.payloads(context)}
        degree = next(iter(sealers.values())).codec.parameters.degree
        clients = context.num_clients
        promise = Guarantee(
            mechanism=f"threshold bfv encryption of {', '.join(payload.__name__ for payload in sealers)}, degree"
            f" {degree}, 128 bits" + ", padded" * self.padded,
            key_custody=f"every client a share; all {clients} clients together open a message, fewer none",
            coalition=clients - 1,
        )
        return ThresholdSession(sealers, context.aggregates, promise, padded=self.padded, clients=clients)

    def _sealer(self, aggregate: Aggregate, context: Context) -> PackedSealer:
        largest, summands = padded_bounds(aggregate, context.num_clients, self.padded)
        if aggregate.integers:
            fixed_point = FixedPoint.of_counts(largest, signed=aggregate.signed, widths=WIDTHS)
        else:
            fixed_point = FixedPoint.of_reals(largest, summands, self.bits, signed=aggregate.signed)
        most = int(summands.max().item())
        codec = ThresholdBfv(context.num_clients, fixed_point, most)
        codec.check_budget(most)
        slots = codec.parameters.slots
        # Of a ciphertext for two, each one's partial decryption travels to the other, so that the server gets them all.
        rows, receivers = aggregate.rows, aggregate.receivers
        layout = Layout.of(rows, receivers, fixed_point.width, aggregate.columns, slots, SLOT_BITS, apart=True)
        return PackedSealer(codec, layout, summands, fixed_point)
