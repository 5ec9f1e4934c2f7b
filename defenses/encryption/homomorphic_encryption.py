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

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Aggregate, Context
from fglaudit.errors import FglauditError, unknown
from fglaudit.facts import Fact, Sealed
from fglaudit.he.bfv import Bfv, bfv_parameters
from fglaudit.he.ckks import SUMS, Ckks
from fglaudit.he.codec import Codec
from fglaudit.he.fixed_point import WIDTHS, FixedPoint
from fglaudit.he.layout import Layout
from fglaudit.he.packed_rows import PackedRows, seal_rows
from fglaudit.he.row_sealer import Cost, RowSealer
from fglaudit.he.weighted_rows import WeightedRows
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import MessageBatch, Payload, payload_type
from fglaudit.privacy.strength import check_factor
from fglaudit.sealing import sealed_tensor

DEGREES = {"bfv": 4096, "ckks": 8192}
"""Polynomial degrees by scheme, where none is given."""
_LARGEST_FLOODING = 8.0
"""Standard deviations of the flooding noise that are taken for its largest value."""
CUSTODY = "one secret key shared by all clients; the server has none"


@dataclass(frozen=True)
class _Sealer:
    """How one payload is sealed."""

    codec: Codec
    layout: Layout
    summands: torch.Tensor


class _Session(DefenseSession):
    def __init__(self, defense: HomomorphicEncryption, context: Context) -> None:
        self.defense = defense
        self.aggregates = context.aggregates
        self.sealers = {
            payload: self._sealer(context.aggregates[payload], context) for payload in defense.payloads(context)
        }

    def _sealer(self, aggregate: Aggregate, context: Context) -> _Sealer | RowSealer:
        defense = self.defense
        if defense.by_rows(aggregate):
            return RowSealer(aggregate, defense.largest)
        largest, summands = aggregate.largest, aggregate.summands
        assert largest is not None
        if defense.padded:
            largest = torch.full_like(largest, float(largest.max()))
            summands = torch.full_like(summands, context.num_clients)
        codec: Codec
        if defense.scheme == "ckks":
            opened = len(aggregate.rows) * aggregate.columns * aggregate.releases
            codec = Ckks(SUMS, largest=float(largest.max()), weight=float(summands.max()), opened=opened)
            width = torch.zeros_like(summands)
        else:
            if aggregate.integers:
                fixed_point = FixedPoint.of_counts(largest, signed=aggregate.signed)
            else:
                fixed_point = FixedPoint.of_reals(largest, summands, defense.bits, signed=aggregate.signed)
            codec, width = Bfv(defense.used_degree, fixed_point), fixed_point.width
            codec.check_budget(int(summands.max().item()))
        layout = Layout.of(aggregate.rows, aggregate.receivers, width, aggregate.columns, codec.parameters.slots)
        return _Sealer(codec, layout, summands)

    def seals(self, payload: type[Payload]) -> bool:
        return payload in self.sealers

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        """Encrypt what clients send; SEAL draws its randomness itself, ``rng`` is not used."""
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
            padded=self.defense.padded,
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
            if self.defense.padded and value.sealed.entries is None and batch.splits is not None:
                return _without_zeros(batch, tensors, tensors[name].flatten(1).any(1))
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(tensors))

    def facts(self) -> tuple[Fact, ...]:
        """Of every sealed payload and what the server makes of it: the errors of encoding and flooding."""
        found: list[Fact] = []
        for payload, sealer in self.sealers.items():
            flooding, rounding = self._errors(sealer)
            found += [
                Sealed(target, self.defense.scheme, readers=1, flooding=flooding, rounding=rounding)
                for target in self.aggregates[payload].targets(payload)
            ]
        return tuple(found)

    @staticmethod
    def _errors(sealer: _Sealer | RowSealer) -> tuple[float, float]:
        """Return the standard deviation of the flooding noise, and the largest error of a sum by its encoding."""
        if isinstance(sealer, RowSealer):
            return sealer.scheme.codec.flooding, 0.0
        if isinstance(sealer.codec, Ckks):
            return sealer.codec.flooding, _LARGEST_FLOODING * sealer.codec.flooding
        if isinstance(sealer.codec, Bfv) and not sealer.codec.fixed_point.whole:
            return 0.0, float(1 / sealer.codec.fixed_point.scale.min()) / 2 * float(sealer.summands.max())
        return 0.0, 0.0

    def guarantee(self) -> Guarantee:
        defense = self.defense
        names = ", ".join(payload.__name__ for payload in self.sealers)
        return Guarantee(
            mechanism=f"{defense.scheme} encryption of {names}, degree {defense.used_degree}, 128 bits"
            + ", padded" * defense.padded,
            key_custody=CUSTODY,
        )


def _without_zeros(batch: MessageBatch, tensors: dict[str, torch.Tensor], keep: torch.Tensor) -> MessageBatch:
    kept = torch.bincount(batch.entry_messages()[keep], minlength=len(batch.senders))
    payload = type(batch.payload).from_tensors({name: value[keep] for name, value in tensors.items()})
    return dataclasses.replace(batch, payload=payload, splits=torch.cat([kept.new_zeros(1), kept.cumsum(0)]))


@dataclass(frozen=True)
class HomomorphicEncryption(Defense):
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

    scheme: str = "bfv"
    degree: int = 0
    bits: int = 14
    padded: bool = False
    on: tuple[str, ...] = ()
    largest: float = 256.0
    most_gigabytes: float = 20.0

    def __post_init__(self) -> None:
        if self.scheme not in DEGREES:
            raise unknown("scheme", self.scheme, DEGREES)
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
        for name in self.on:
            payload_type(name)
        for field in ("largest", "most_gigabytes"):
            if not getattr(self, field) > 0:
                raise FglauditError(
                    f"{field} must be positive; got {getattr(self, field):g}; leave it out for the default"
                )

    @property
    def used_degree(self) -> int:
        return self.degree or DEGREES[self.scheme]

    def payloads(self, context: Context) -> tuple[type[Payload], ...]:
        """Return what is sealed."""
        if self.on:
            return tuple(payload_type(name) for name in self.on)
        return tuple(payload for payload in context.aggregates if self._refusal(payload, context) is None)

    def by_rows(self, aggregate: Aggregate) -> bool:
        """Whether every row gets ciphertexts of its own: where rows are multiplied, or nobody knows a bound."""
        return self.scheme == "ckks" and (aggregate.weighted or aggregate.largest is None)

    def unsupported(self, context: Context) -> str | None:
        if not self.on and self.payloads(context):
            return None
        asked = [payload_type(name) for name in self.on] or [*context.aggregates, *context.readers]
        reasons = [reason for payload in asked if (reason := self._refusal(payload, context)) is not None]
        if not asked:
            return f"{context.protocol}'s clients send the server nothing that it computes with"
        return "; ".join(reasons) or None

    def _refusal(self, payload: type[Payload], context: Context) -> str | None:
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
        if self.padded and len(torch.unique(aggregate.rows)) < len(aggregate.rows):
            return (
                f"padding hides nothing where rows of {name} have several receivers: which client gets a row shows its"
                " neighbours"
            )
        return None

    def weakened(self, factor: float) -> HomomorphicEncryption:
        """Return itself: encryption is as strong at any setting."""
        check_factor(factor)
        return self

    def bind(self, context: Context) -> DefenseSession:
        reason = self.unsupported(context)
        if reason is not None:
            raise FglauditError(f"homomorphic encryption cannot serve: {reason}; use another defense or payload")
        return _Session(self, context)
