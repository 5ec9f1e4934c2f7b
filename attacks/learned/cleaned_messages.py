"""Messages of an observer with what a defense did to them undone, read as lazily as those that were recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from fglaudit.attacks.learned.entries import entries, float_fields, mapped, upwards, width_of
from fglaudit.attacks.learned.maps.row_map import Learned
from fglaudit.attacks.learned.node_totals import Totals
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.view import Messages

Key = tuple[bool, str]
"""Whether clients sent it, and the field."""
_MOST_KEPT = 2**26
"""Numbers of cleaned batches that are kept, so that attacks which read them often do not clean them again."""

_MOST_AT_ONCE = 2**19
"""Numbers that are cleaned at once: few enough for a processor's cache."""


@dataclass(frozen=True)
class FieldMap:
    """How one field is cleaned.

    Attributes:
        learned: the map of every row; by batch where it depends on the place.
        by_batch: maps of the first batches, in order, if it does.
        kept: by batch which rows [n] are kept: the others are noise.
        width: D; messages of another width are left as they are.
        left: root mean square of what the map leaves.
        nothing: below that an entry is 0; of the largest entry of the row that was sent.
        coarse: whether that is more than numbers of the wire's precision have anyway.
        of_run: whether it was learned from known rows, of which more may tell more.
    """

    learned: Learned
    width: int
    left: float = 0.0
    nothing: float = 0.0
    coarse: bool = False
    by_batch: tuple[Learned, ...] = ()
    kept: tuple[Tensor, ...] = ()
    of_run: bool = False


class _Kept:
    """Batches that are made when they are first read."""

    def __init__(self, source: Iterator[MessageBatch]) -> None:
        self.source = source
        self.made: list[MessageBatch] = []

    def __iter__(self) -> Iterator[MessageBatch]:
        place = 0
        while True:
            if place == len(self.made):
                following = next(self.source, None)
                if following is None:
                    return
                self.made.append(following)
            yield self.made[place]
            place += 1


@dataclass(frozen=True)
class CleanedMessages:
    """The messages of an observer with some fields of one payload cleaned.

    Attributes:
        totals: whether what the server sends of a node is the sum of what clients sent of it, all of which is seen: it
            is then made again of the cleaned parts.
    """

    messages: Messages
    payload: type[Payload]
    maps: Mapping[Key, FieldMap]
    features: int
    totals: bool = False
    _kept: list[_Kept | None] = field(default_factory=list, init=False, repr=False, compare=False)

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload, in order; rows that are noise in any field are left out."""
        if payload is not self.payload:
            yield from self.messages.of(payload)
            return
        if not self._kept:
            self._kept.append(_Kept(self._cleaned()) if self._few() else None)
        yield from self._kept[0] or self._cleaned()

    def _few(self) -> bool:
        numbers = 0
        for batch in self.messages.of(self.payload):
            numbers += batch.payload.numbers()
            if numbers > _MOST_KEPT:
                return False
        return True

    def _cleaned(self) -> Iterator[MessageBatch]:
        number = {True: -1, False: -1}
        added = Totals()
        for batch in self.messages.of(self.payload):
            direction = upwards(batch)
            number[direction] += 1
            made, keep = {}, None
            for name, value in ((n, batch.payload.tensors()[n]) for n in float_fields(batch)):
                found = self.maps.get((direction, name))
                if found is None or len(value) == 0 or width_of(value, self.features) != found.width:
                    continue
                place = number[direction] % max(1, len(found.by_batch))
                map_ = found.by_batch[place] if found.by_batch else found.learned
                most = value.numel() if found.by_batch else _MOST_AT_ONCE
                made[name] = mapped(value, self.features, partial(_clean, map_=map_, nothing=found.nothing), most)
                kept = found.kept[number[direction] % len(found.kept)] if found.kept else None
                if kept is not None and len(kept) == value.numel() // found.width:
                    keep = _entries_kept(kept, entries(batch, name, self.features).message, batch, keep)
            cleaned = dataclasses.replace(batch, payload=batch.payload.with_fields(made))
            if self.totals:
                cleaned = added.followed(cleaned) if direction else added.made_again(cleaned)
            yield cleaned if keep is None else cleaned.select_entries(keep)


def _clean(sent: Tensor, map_: Learned, nothing: float) -> Tensor:
    """Return rows [n, D] cleaned."""
    clean = map_.apply(sent)
    return torch.where(clean.abs() <= nothing * largest(sent), 0.0, clean)


def _entries_kept(kept: Tensor, message: Tensor, batch: MessageBatch, before: Tensor | None) -> Tensor:
    """Return which entries of the payload's leading axis have all their rows."""
    count = next(iter(batch.payload.shapes().values()))[0]
    lost = torch.zeros(count, dtype=torch.bool)
    lost[message[~kept]] = True
    return ~lost if before is None else before & ~lost


def largest(sent: Tensor) -> Tensor:
    """Return the largest entry of every row [n, 1]."""
    return sent.nan_to_num(0.0, 0.0, 0.0).abs().amax(1, keepdim=True).clamp(min=1e-30)
