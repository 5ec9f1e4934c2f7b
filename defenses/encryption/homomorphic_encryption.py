"""Homomorphic encryption: clients encrypt, the server adds ciphertexts and forwards the sums, clients decrypt.

Custody: the clients share one secret key that one of them makes and gives to the others; the server gets parameters and
no key (``fglaudit.he.keys``). So a client reads what it did without encryption; the server together with one client, or
one client that eavesdrops on the wire, reads everything. The server still sees which rows every client sends, hence
which client has neighbours of which node, how wide a row's fields are, hence whether its degree is large, and every
payload that is not sealed (models).

``padded``: every client sends every row, zeros where it has none, with fields of one width. That hides presence and
width where every row has one receiver. With several, which client gets a row shows its neighbours all the same, and
padding is refused.

Schemes: ``bfv`` adds whole numbers exactly, several to a slot, real numbers in fixed point
(``fglaudit.he.fixed_point``); ``ckks`` adds real numbers with an error of about 1e-6, one to a slot, for features whose
range is wide: ciphertexts are then 15 times larger. It alone serves where the server multiplies by public numbers, or
where no bound is known (models): ``fglaudit.he.weighted_rows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fglaudit.context import Aggregate, Context
from fglaudit.defenses.encryption.packed_session import (
    PackedDefense,
    PackedSealer,
    PackedSession,
    padded_bounds,
    useless_padding,
)
from fglaudit.errors import FglauditError
from fglaudit.he.bfv import Bfv, bfv_parameters
from fglaudit.he.ckks import SUMS, Ckks
from fglaudit.he.codec import Codec
from fglaudit.he.fixed_point import WIDTHS, FixedPoint
from fglaudit.he.layout import Layout
from fglaudit.he.row_sealer import Cost, RowSealer
from fglaudit.interfaces import DefenseSession, Guarantee
from fglaudit.payloads import Payload, PayloadName, payload_types

Scheme = Literal["bfv", "ckks"]
DEGREES: dict[Scheme, int] = {"bfv": 4096, "ckks": 8192}
"""Polynomial degrees by scheme, where none is given."""
CUSTODY = "one secret key shared by all clients; the server has none"


@dataclass(frozen=True)
class HomomorphicEncryption(PackedDefense):
    """Encrypt what the server only adds up, so that it cannot read it.

    Attributes:
        scheme: "bfv" or "ckks".
        degree: of the polynomials; 0: 4096 for bfv, 8192 for ckks.
        bits: of a fixed-point number, sums included; one of 4, 8, 14, 18, 28, 56. Whole numbers get as many as their
            bound needs.
        padded: every client sends every row, so that presence and width reveal nothing.
        on: names of the payloads; empty: all that can be encrypted.
        largest: bound on absolute values where the protocol knows none; larger ones are refused before they are
            encrypted.
        most_gigabytes: of ciphertexts in one training, for payloads that take whole ciphertexts row by row; more is
            refused.
    """

    name: ClassVar[str] = "homomorphic-encryption"
    shown: ClassVar[tuple[str, ...]] = ("scheme", "padded")

    scheme: Scheme = "bfv"
    degree: int = 0
    bits: int = 14
    padded: bool = False
    on: tuple[PayloadName, ...] = ()
    largest: float = 256.0
    most_gigabytes: float = 20.0

    def __post_init__(self) -> None:
        if self.scheme == "bfv":
            bfv_parameters(self.used_degree)
        elif self.used_degree != SUMS.degree:
            raise FglauditError(
                f"ckks with noise flooding has parameters for polynomial degree {SUMS.degree}; got {self.degree}; leave"
                " degree out"
            )
        if self.bits not in WIDTHS:
            raise FglauditError(
                f"fields of a slot have {', '.join(map(str, WIDTHS))} bits; got {self.bits}; use e.g. bits: 14"
            )
        payload_types(self.on)
        for field in ("largest", "most_gigabytes"):
            if not getattr(self, field) > 0:
                raise FglauditError(
                    f"{field} must be positive; got {getattr(self, field):g}; leave it out for the default"
                )

    @property
    def used_degree(self) -> int:
        return self.degree or DEGREES[self.scheme]

    def by_rows(self, aggregate: Aggregate) -> bool:
        """Whether every row gets ciphertexts of its own: where rows are multiplied, or nobody knows a bound."""
        return self.scheme == "ckks" and (aggregate.weighted or aggregate.largest is None)

    def refusal(self, payload: type[Payload], context: Context) -> str | None:
        aggregate, name = context.aggregates.get(payload), payload.__name__
        if aggregate is None:
            return context.unsealable(payload)
        if self.by_rows(aggregate):
            if self.padded:
                return (
                    f"padding is for rows that some clients send and others do not; {name} is not of that kind; leave"
                    " padded out"
                )
            return Cost.of(aggregate).beyond(self.most_gigabytes, name)
        if aggregate.weighted:
            return (
                f"the server multiplies {name} by numbers other than 0 and 1; ciphertexts packed for sums leave no room"
                " for that; use scheme: ckks"
            )
        if aggregate.largest is None:
            return f"packed ciphertexts hold sums up to a bound, and none is known for {name}; use scheme: ckks"
        return useless_padding(aggregate, name) if self.padded else None

    def bind(self, context: Context) -> DefenseSession:
        reason = self.unsupported(context)
        if reason is not None:
            raise FglauditError(f"homomorphic encryption cannot serve: {reason}; use another defense or payload")
        sealers = {payload: self._sealer(context.aggregates[payload], context) for payload in self.payloads(context)}
        names = ", ".join(payload.__name__ for payload in sealers)
        promise = Guarantee(
            mechanism=f"{self.scheme} encryption of {names}, degree {self.used_degree}, 128 bits"
            + ", padded" * self.padded,
            key_custody=CUSTODY,
        )
        return PackedSession(self.scheme, sealers, context.aggregates, promise, padded=self.padded)

    def _sealer(self, aggregate: Aggregate, context: Context) -> PackedSealer | RowSealer:
        if self.by_rows(aggregate):
            return RowSealer(aggregate, self.largest)
        largest, summands = padded_bounds(aggregate, context.num_clients, self.padded)
        codec: Codec
        fixed_point = None
        if self.scheme == "ckks":
            opened = len(aggregate.rows) * aggregate.columns * aggregate.releases
            codec = Ckks(SUMS, largest=float(largest.max()), weight=float(summands.max()), opened=opened)
            width = torch.zeros_like(summands)
        else:
            if aggregate.integers:
                fixed_point = FixedPoint.of_counts(largest, signed=aggregate.signed)
            else:
                fixed_point = FixedPoint.of_reals(largest, summands, self.bits, signed=aggregate.signed)
            codec, width = Bfv(self.used_degree, fixed_point), fixed_point.width
            codec.check_budget(int(summands.max().item()))
        layout = Layout.of(aggregate.rows, aggregate.receivers, width, aggregate.columns, codec.parameters.slots)
        return PackedSealer(codec, layout, summands, fixed_point)
