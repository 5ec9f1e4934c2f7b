"""Secure aggregation: the server gets the sum of what clients send, and nothing else of it.

Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, sections 3-5 and figure
4, for an honest-but-curious server: pairwise masks from X25519, HKDF and ChaCha20, a mask of its own per client, and
shares of keys and seeds so that clients may drop out after the keys are exchanged (:mod:`fglaudit.secagg`). The result
is then the sum, or the mean, over those who are left.

What the server sees: the sums, in the clear, because masks cancel in them. **Sums are not private by themselves**: an
observer that knows the graph can solve FedGCN's sums for single rows, as a client can. Together with c clients the
server sees the sum over the others; if only one other is left, its message is exposed. With t clients it opens every
message: they hold enough shares. A server that deviates from the protocol is not covered: two sums over senders that
differ by one client differ by its message (:mod:`fglaudit.parties.repeat_pretraining`).

Choices where the paper is silent:

* Every client sends a row for every node, zeros included: which rows a client has would show edges, and a row with a
  single sender would have no pairwise mask. Which rows it gets back shows its nodes' neighbours with two hops or more.
* All clients take part in an aggregation of rows, and of models where all send theirs, in one batch or several;
  otherwise the senders of the batch do (FedAvg that samples clients).
* Values are rounded to fixed point modulo 2^bits. The encoding leaves room for n values of the largest size, so sums
  cannot overflow. A value beyond the bound is an error before anything is masked; it is never clipped.
* Where a payload has no public bound (models), ``range`` is it.
* Keys are new in every round; they are not drawn from the run's seed, and change no result.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Context
from fglaudit.errors import FglauditError
from fglaudit.facts import Absent, Fact, Sealed
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import MessageBatch, Payload, PayloadName, payload_types
from fglaudit.sealing import SealedTensor, sealed_tensor
from fglaudit.secagg.fixed_point import WORDS, ModularFixedPoint
from fglaudit.secagg.rows import MaskedRows

if TYPE_CHECKING:
    from fglaudit.secagg.aggregation import Aggregation

_CHUNK_BYTES = 2**26
_MOST_CLIENTS = 256
"""Every pair agrees on keys in every round; Bell et al. (CCS 2020) do with fewer pairs, this does not."""


@dataclass
class MaskingRound:
    """One aggregation: its members, the rows of its masks, and what the masks leave in the sum.

    Attributes:
        number: of the aggregation, counted over the run.
        round: of the protocol.
        clients: the members [n], ascending; ``survivors`` are positions in this list.
        slots: node ids with a row of masks [S], or [1] for payloads without.
    """

    number: int
    round: int
    clients: Tensor
    aggregation: Aggregation
    code: ModularFixedPoint
    slots: Tensor
    device: torch.device
    remainder: dict[int, Tensor] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)


class MaskingSession(DefenseSession):
    def __init__(self, defense: SecureAggregation, context: Context, served: Mapping[type[Payload], Aggregate]) -> None:
        self.defense = defense
        self.context = context
        self.served = served
        self.rounds: dict[type[Payload], MaskingRound] = {}
        self.started = 0
        self.absent: dict[str, list[int]] = {}
        self.left_out: tuple[int, ...] = ()
        self._bytes = torch.zeros(2, context.num_clients, dtype=torch.long)
        for payload in served:
            self._code(payload, context.num_clients)

    def seals(self, payload: type[Payload]) -> bool:
        return payload in self.served

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        """Mask what the surviving senders send."""
        current = self._round(batch, rng)
        places = torch.searchsorted(current.clients, batch.senders)
        if not bool(torch.isin(batch.senders, current.clients).all()) or current.sent.intersection(places.tolist()):
            raise FglauditError(
                f"in a round every client that takes part sends one masked message; {type(batch.payload).__name__} of"
                f" round {batch.round} comes twice, or from others than in the first batch; use another defense for"
                " this protocol"
            )
        current.sent.update(places.tolist())
        kept = torch.isin(places, torch.tensor(current.aggregation.survivors))
        batch, places = batch.select(kept), places[kept]
        number, rows = len(places), len(current.slots)
        senders = torch.repeat_interleave(places, rows)
        parts = torch.zeros(len(senders), len(current.clients), dtype=torch.int32)
        parts[torch.arange(len(senders)), senders] = 1
        slot, factor = torch.arange(rows).repeat(number), torch.ones(len(senders), dtype=torch.float64)
        fields: dict[str, Tensor] = {}
        for index, (name, value) in enumerate(batch.payload.tensors().items()):
            if name == "nodes":
                fields[name] = current.slots.repeat(number).to(value.device)
                continue
            words = dense_words(current, batch, value)
            for place, own in zip(places.tolist(), words, strict=True):
                current.aggregation.mask(place, own, index)
            masked = MaskedRows(words.flatten(0, 1), current.number, index, slot, parts, factor)
            fields[name] = sealed_tensor(masked, (len(senders), *value.shape[1:]), value.dtype)
        splits = torch.arange(number + 1) * rows if batch.splits is not None else None
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(fields), splits=splits)

    def forward(self, batch: MessageBatch) -> MessageBatch:
        """Subtract what is left of the masks from totals; from here on the server can read them."""
        return self._opened(batch, self._total)

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        """Read single messages, as ``readers`` clients that pool their shares and the server could."""
        return self._opened(batch, self._single)

    def readers(self, batch: MessageBatch) -> int:
        sealed = next(iter(batch.payload.sealed_fields().values()))
        return self._of(sealed).aggregation.threshold

    def leave_out(self, clients: tuple[int, ...]) -> None:
        """Treat ``clients`` in the aggregations to come as dropped out after keys were exchanged."""
        self.left_out = clients

    def overhead(self) -> tuple[Tensor, Tensor]:
        up, down = self._bytes.clone()
        self._bytes.zero_()
        return up, down

    def facts(self) -> tuple[Fact, ...]:
        """Of every masked payload and what the server makes of it: who is missing, then what sums are rounded to."""
        clients, found = self.context.num_clients, list[Fact]()
        for payload, aggregate in self.served.items():
            gone = tuple(self.absent.get(payload.__name__, ()))
            rounding = self._code(payload, clients).rounding(clients)
            for target in aggregate.targets(payload):
                if self.defense.dropouts:
                    found.append(Absent(target, gone, 0.0 if gone else self.defense.dropouts))
                found.append(
                    Sealed(target, "secure-aggregation", readers=self.defense.least(clients), rounding=rounding)
                )
        return tuple(found)

    def guarantee(self) -> Guarantee:
        names = ", ".join(payload.__name__ for payload in self.served)
        clear = [r.payload.__name__ for r in self.context.releases if r.payload not in self.served]
        n = self.context.num_clients
        left = n - math.floor(self.defense.dropouts * n + 0.5)
        together = min(self.defense.least(n), left - 1)  # all but one that are left take their messages off the sum
        return Guarantee(
            mechanism=f"secure aggregation of {names}: an honest-but-curious server reads sums only"
            + (f"; in the clear: {', '.join(clear)}" if clear else ""),
            key_custody=(f"every client its own; the server and {together} of {n} clients together read each message"),
        )

    def _code(self, payload: type[Payload], summands: int) -> ModularFixedPoint:
        aggregate = self.served[payload]
        known = aggregate.largest is not None
        largest = float(aggregate.largest.max().item()) if aggregate.largest is not None else self.defense.range
        return ModularFixedPoint.of(largest, summands, self.defense.bits, integers=aggregate.integers and known)

    def _round(self, batch: MessageBatch, rng: torch.Generator) -> MaskingRound:
        """Return the aggregation that ``batch`` is part of; exchange keys if it is the first."""
        payload = type(batch.payload)
        current = self.rounds.get(payload)
        if current is not None and current.round == batch.round:
            return current
        from fglaudit.secagg.aggregation import Aggregation

        everyone = payload.ragged or int(self.served[payload].summands.max().item()) == self.context.num_clients
        clients = torch.arange(self.context.num_clients) if everyone else torch.unique(batch.senders)
        size = len(clients)
        gone = math.floor(self.defense.dropouts * size + 0.5)
        order = torch.randperm(size, generator=rng) if gone else torch.arange(size)
        there = [place for place in order[gone:].tolist() if int(clients[place].item()) not in self.left_out]
        aggregation = Aggregation(size, there, self.defense.least(size))
        slots = torch.unique(self.served[payload].rows) if payload.ragged else torch.zeros(1, dtype=torch.long)
        device = next(iter(batch.payload.tensors().values())).device
        self.started += 1
        code = self._code(payload, size)
        current = MaskingRound(self.started, batch.round, clients, aggregation, code, slots, device)
        self.rounds[payload] = current
        if gone and payload.ragged and not self.left_out:
            self.absent[payload.__name__] = clients[order[:gone]].sort().values.tolist()
        self._spend(clients, aggregation.setup_bytes())
        return current

    def _spend(self, clients: Tensor, size: tuple[int, int]) -> None:
        self._bytes[:, clients] += torch.tensor(size)[:, None]

    def _of(self, sealed: SealedTensor) -> MaskingRound:
        rows = sealed.sealed
        if not isinstance(rows, MaskedRows):
            raise FglauditError(
                "secure aggregation opens its own masked rows alone; got others; use one sealing defense at a time"
            )
        found = next((r for r in self.rounds.values() if r.number == rows.aggregation), None)
        if found is None:
            raise FglauditError(
                "masked sums are opened in the round they were sent in; got older ones; forward them earlier"
            )
        return found

    def _opened(self, batch: MessageBatch, read: Any) -> MessageBatch:
        fields = {
            name: (
                read(self._of(value), value.sealed).reshape(value.shape).to(value.dtype)
                if isinstance(value, SealedTensor)
                else value
            )
            for name, value in batch.payload.tensors().items()
        }
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(fields))

    def _total(self, current: MaskingRound, rows: MaskedRows) -> Tensor:
        survivors = torch.zeros(len(current.clients), dtype=rows.parts.dtype)
        survivors[list(current.aggregation.survivors)] = 1
        if not bool(((rows.parts == survivors).all(1) | (rows.slot < 0)).all()):
            raise FglauditError(
                "masks cancel in the sum over all clients that are left; a sum lacks some, or has one twice; use the"
                " defense where the server adds up one message of every client"
            )
        if rows.field not in current.remainder:
            if not current.remainder:
                current.aggregation.reveal()
                self._spend(current.clients[list(current.aggregation.survivors)], current.aggregation.reveal_bytes())
            shape = (len(current.slots), rows.words.shape[1])
            current.remainder[rows.field] = current.aggregation.remainder(shape, rows.words.dtype, rows.field)
        return _decoded(current, rows, current.remainder[rows.field])

    def _single(self, current: MaskingRound, rows: MaskedRows) -> Tensor:
        opened = rows.words.clone().view(-1, len(current.slots), rows.words.shape[1])
        pooled = current.aggregation.survivors[: current.aggregation.threshold]
        for place, own in zip(rows.parts[:: len(current.slots)].argmax(1).tolist(), opened, strict=True):
            current.aggregation.expose(place, own, rows.field, pooled)
        return _decoded(current, dataclasses.replace(rows, words=opened.flatten(0, 1)), None)


def dense_words(current: MaskingRound, batch: MessageBatch, value: Tensor) -> Tensor:
    """Return the words [P, S, D] of messages with a row for every slot."""
    words = current.code.encode(value.flatten(1), type(batch.payload).__name__)
    if batch.splits is None:
        return words.unsqueeze(1)
    nodes = batch.payload.tensors()["nodes"].cpu()
    slot = torch.searchsorted(current.slots, nodes).clamp(max=len(current.slots) - 1)
    place = batch.entry_messages() * len(current.slots) + slot
    if not torch.equal(current.slots[slot], nodes) or len(torch.unique(place)) < len(place):
        raise FglauditError(
            f"{type(batch.payload).__name__} must have at most one row for each node of aggregates(); it has others;"
            " correct the protocol"
        )
    dense = torch.zeros(len(batch.senders) * len(current.slots), words.shape[1], dtype=words.dtype)
    dense[place] = words
    return dense.view(len(batch.senders), len(current.slots), -1)


def _decoded(current: MaskingRound, rows: MaskedRows, masks: Tensor | None) -> Tensor:
    """Return the values [R, D] of rows, less ``masks`` [S, D], in float32 unless that would round whole numbers."""
    out = torch.empty(rows.shape, dtype=torch.float64 if rows.words.dtype == torch.int64 else torch.float32)
    step = max(1, _CHUNK_BYTES // (8 * max(1, rows.shape[1])))
    for low in range(0, rows.shape[0], step):
        part = slice(low, low + step)
        words, slot = rows.words[part], rows.slot[part]
        if masks is not None:
            words = torch.where(slot[:, None] < 0, words, words - masks[slot.clamp(min=0)])
        out[part] = (current.code.decode(words) * rows.factor[part, None]).to(out.dtype)
    return out.to(current.device)


@dataclass(frozen=True)
class SecureAggregation(Defense):
    """The server reads sums of clients' messages only (Bonawitz et al. 2017). No epsilon is promised.

    Attributes:
        on: names of the payloads; those that the protocol does not send are left out.
        range: bound on the absolute values of payloads that have no public one; larger values are an error.
        threshold: share of the clients that must stay to the end of a round, and that could open every message.
        dropouts: share of the clients that vanish in each round after keys are exchanged.
        bits: 32 or 64, of the words in which sums are taken.
    """

    name: ClassVar[str] = "secure-aggregation"
    shown: ClassVar[tuple[str, ...]] = ("dropouts",)

    on: tuple[PayloadName, ...] = ("NeighborSums", "ModelUpdate")
    range: float = 16.0
    threshold: float = 2 / 3
    dropouts: float = 0.0
    bits: int = 32

    def __post_init__(self) -> None:
        payload_types(self.on)
        if not self.on or len(set(self.on)) < len(self.on):
            raise FglauditError(f"on names payloads, each once; got {list(self.on)}; name e.g. NeighborSums")
        if not (self.range > 0 and math.isfinite(self.range)):
            raise FglauditError(f"range must be positive; got {self.range:g}; use e.g. range: 16")
        if not 0.5 < self.threshold <= 1:
            raise FglauditError(
                "threshold is a share of the clients in (0.5, 1]: with less, two halves could be asked for different"
                f" shares; got {self.threshold:g}; use e.g. 0.67"
            )
        if not 0 <= self.dropouts < 1:
            raise FglauditError(f"dropouts is a share of the clients in [0, 1); got {self.dropouts:g}; use e.g. 0.1")
        if self.bits not in WORDS:
            raise FglauditError(f"bits must be one of {', '.join(map(str, WORDS))}; got {self.bits}; use 32")

    def least(self, clients: int) -> int:
        """Return t: how many of ``clients`` must stay."""
        return max(2, math.ceil(self.threshold * clients - 1e-9))

    def unsupported(self, context: Context) -> str | None:
        served, reasons = self._served(context)
        if context.num_clients < 2:
            return "with one client a sum is its message"
        if context.num_clients > _MOST_CLIENTS:
            return (
                f"every pair of clients agrees on keys in every round, which is done for up to {_MOST_CLIENTS} clients"
            )
        if reasons:
            return "; ".join(reasons)
        if not served:
            return (
                f"the server of {context.protocol} does more with what it gets than adding it up, or gets none of"
                f" {', '.join(self.on)}: it cannot work on sums alone"
            )
        return None

    def bind(self, context: Context) -> DefenseSession:
        try:
            import cryptography  # noqa: F401
        except ImportError as error:
            raise FglauditError(
                "secure aggregation needs the library cryptography; it is not installed; run: pip install"
                " 'fglaudit[secagg]'"
            ) from error
        if reason := self.unsupported(context):
            raise FglauditError(f"secure aggregation does not apply: {reason}; use another defense or payload")
        return MaskingSession(self, context, self._served(context)[0])

    def _served(self, context: Context) -> tuple[dict[type[Payload], Aggregate], Sequence[str]]:
        """Return the payloads that are masked, and reasons why others that are named cannot be."""
        named = {p: a for p, a in context.aggregates.items() if p.__name__ in self.on}
        reasons = [
            f"the server of {context.protocol} weights {payload.__name__} by receiver or sender, and masks cancel only"
            " in plain sums"
            for payload, aggregate in named.items()
            if aggregate.weighted
        ]
        return named, reasons
