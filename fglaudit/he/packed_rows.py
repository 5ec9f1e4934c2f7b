"""Rows in ciphertexts, packed by a layout that all senders share.

What the server holds is a list of bundles: the ciphertexts of one sender, or of a sum. A row is a name in a bundle,
nothing more. Adding rows is adding bundles ciphertext by ciphertext, so either all rows of a bundle are added up or
none; and a row can be picked only when its receiver is known (:func:`addressed`), because then a whole ciphertext goes
to whom all of its rows are for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.he.codec import Codec
from fglaudit.he.layout import Layout
from fglaudit.sealing import SealedRows
from fglaudit.sparse_tensors import coo


@dataclass(frozen=True)
class Bundle:
    """Ciphertexts of one origin.

    Attributes:
        terms: messages that were added up in each row, by row id [n]; 0 where it has no such row.
        blocks: ciphertexts by their number in the layout; those that are missing are zeros.
        size: bytes counted for each on the wire.
    """

    terms: Tensor
    blocks: Mapping[int, Any]
    size: int


@dataclass(frozen=True)
class PackedRows(SealedRows):
    """See the module docstring.

    Attributes:
        codec, layout: of all rows.
        summands: bound on the messages in a row, by row id [n].
        bundles: where rows lie.
        rows: row ids [R]; -1 for rows of zeros.
        origin: bundle of each row [R]; -1 for rows of zeros.
        entries: the place of the layout from which each row is read [R]; None before the rows are addressed.
    """

    codec: Codec
    layout: Layout
    summands: Tensor
    bundles: tuple[Bundle, ...]
    rows: Tensor
    origin: Tensor
    entries: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.layout.columns

    def combine(self, weights: Tensor) -> PackedRows:
        (out, column), values = weights.indices(), weights.values()
        if not bool((values == 1).all()):
            raise FglauditError(
                "packed ciphertexts are added up and picked: weights are 0 or 1; got "
                f"{float(values[values != 1][0]):g}; use scheme: ckks, which multiplies by public numbers"
            )
        full = self.origin[column] >= 0
        out, column = out[full], column[full]
        rows, origin = (torch.full((weights.shape[0],), -1) for _ in range(2))
        rows[out] = self.rows[column]
        if int(torch.bincount(out, minlength=1).max().item()) <= 1:
            origin[out] = self.origin[column]
            return replace(self, rows=rows, origin=origin, entries=None)
        if not torch.equal(rows[out], self.rows[column]):
            raise FglauditError(
                "packed ciphertexts are added place by place; rows of different nodes were to be added up; use scheme:"
                " ckks"
            )
        named = rows[rows >= 0]
        used = torch.zeros(len(self.bundles), self.layout.num_rows, dtype=torch.long)
        used.index_put_((self.origin[column], self.rows[column]), torch.ones_like(column), accumulate=True)
        touched = [self.bundles[k] for k in torch.unique(self.origin[column]).tolist()]
        whole = all(
            torch.equal(count, (self.bundles[k].terms > 0).long()) for k, count in enumerate(used) if bool(count.any())
        )
        if not whole or len(torch.unique(named)) != len(named):
            raise FglauditError(
                "packed ciphertexts are added whole: every row of a message once, to one total; use scheme: ckks for"
                " other sums"
            )
        origin[rows >= 0] = 0
        return replace(self, bundles=(self._total(touched),), rows=rows, origin=origin, entries=None)

    def add(self, other: SealedRows) -> PackedRows:
        if not isinstance(other, PackedRows) or other.layout is not self.layout or other.shape != self.shape:
            raise FglauditError("sealed rows are added to sealed rows of the same payload; keep payloads apart")
        count = len(self.rows)
        shifted = torch.where(other.origin >= 0, other.origin + len(self.bundles), -1)
        both = replace(
            self,
            bundles=(*self.bundles, *other.bundles),
            rows=torch.cat([self.rows, other.rows]),
            origin=torch.cat([self.origin, shifted]),
            entries=None,
        )
        at = torch.arange(count)
        pairs = torch.stack([at.repeat(2), torch.arange(2 * count)])
        return both.combine(coo(pairs, torch.ones(2 * count, dtype=torch.double), (count, 2 * count)).coalesce())

    def _total(self, bundles: list[Bundle]) -> Bundle:
        """Add ``bundles`` up, ciphertext by ciphertext, as the server does."""
        terms = torch.stack([bundle.terms for bundle in bundles]).sum(0)
        if bool((terms > self.summands).any()):
            row = int((terms > self.summands).nonzero()[0])
            raise FglauditError(
                f"fields are as wide as the bound on messages needs; row {row} got {int(terms[row])} messages, bounded"
                f" by {int(self.summands[row])}; the protocol's `aggregates` must state the true bound"
            )
        parts = dict[int, list[Any]]()
        for bundle in bundles:
            for number, ciphertext in bundle.blocks.items():
                parts.setdefault(number, []).append(ciphertext)
        blocks = {n: self.codec.total(each) if len(each) > 1 else each[0] for n, each in parts.items()}
        return Bundle(terms, blocks, self.codec.parameters.full_bytes)

    def addressed(self, splits: Tensor, receivers: Tensor) -> PackedRows:
        """Return the rows with the place from which each receiver reads its own.

        Args:
            splits: [P + 1], receiver p gets the rows ``splits[p]:splits[p + 1]``.
            receivers: clients [P].
        """
        entries = torch.full_like(self.rows, -1)
        for receiver, (low, high) in zip(receivers.tolist(), _ranges(splits), strict=True):
            full = low + (self.rows[low:high] >= 0).nonzero().squeeze(1)
            entries[full] = self.layout.entries_for(self.rows[full], receiver)
        return replace(self, entries=entries)

    def wire_bytes(self, splits: Tensor) -> Tensor:
        total = [
            sum(len(blocks) * self.bundles[k].size for k, blocks in self._needed(low, high).items())
            for low, high in _ranges(splits)
        ]
        return torch.tensor(total, dtype=torch.long)

    def _needed(self, low: int, high: int) -> dict[int, list[int]]:
        """Return by bundle the ciphertexts sent with rows ``low:high``: all of a sender's, of a sum those addressed."""
        found = {}
        for k in torch.unique(self.origin[low:high]).tolist():
            if k < 0:
                continue
            blocks = self.bundles[k].blocks
            if self.entries is None:
                found[k] = list(blocks)
            else:
                mine = self.entries[low:high][self.origin[low:high] == k]
                found[k] = [number for number in self.layout.blocks_of(mine).tolist() if number in blocks]
        return found

    def opened(self) -> Tensor:
        """Return the values [R, D] in float64, as a client with the key reads them."""
        values = torch.zeros(self.shape, dtype=torch.double)
        entries = self.layout.any_entry(self.rows) if self.entries is None else self.entries
        group = self.layout.entry_group[entries]
        for k in torch.unique(self.origin[self.origin >= 0]).tolist():
            mine = self.origin == k
            for g in torch.unique(group[mine]).tolist():
                at = (mine & (group == g)).nonzero().squeeze(1)
                values[at] = self._read(self.bundles[k], g, entries[at], self.rows[at])
        return values

    def _read(self, bundle: Bundle, group: int, entries: Tensor, rows: Tensor) -> Tensor:
        """Decrypt the rows [R, D] at ``entries`` [R] of one group."""
        layout = self.layout
        first, last = (int(number.item()) for number in layout.group_block[group : group + 2])
        wanted = [number for number in layout.blocks_of(entries).tolist() if number in bundle.blocks]
        width, room = (int(of_group[group].item()) for of_group in (layout.group_width, layout.group_room))
        read = self.codec.decrypt([bundle.blocks[number] for number in wanted], width)
        stream = read.new_zeros(last - first, room)
        stream[torch.tensor(wanted, dtype=torch.long) - first] = read
        size = len(layout.entry_row[layout.members(group)])
        table = stream.flatten()[: size * layout.columns].view(size, layout.columns)
        return self.codec.restore(
            table[torch.div(layout.entry_start[entries], layout.columns, rounding_mode="floor")], rows
        )


def _ranges(splits: Tensor) -> list[tuple[int, int]]:
    bounds = splits.tolist()
    return list(itertools.pairwise(bounds))


def seal_rows(
    codec: Codec, layout: Layout, summands: Tensor, rows: Tensor, values: Tensor, splits: Tensor, *, padded: bool
) -> PackedRows:
    """Encrypt what every sender sends.

    Args:
        summands: bound on the messages in a row, by row id [n].
        rows: row ids [R].
        values: [R, D].
        splits: [P + 1], the p-th sender sends the rows ``splits[p]:splits[p + 1]``.
        padded: whether every sender sends all rows, zeros where it has none: presence and number reveal nothing.
    """
    senders, bundles = torch.arange(len(splits) - 1), []
    everything = torch.unique(layout.entry_row)
    named = everything.repeat(len(senders)) if padded else rows
    origin = torch.repeat_interleave(senders, torch.full_like(senders, len(everything)) if padded else splits.diff())
    for low, high in _ranges(splits):
        mine, position = rows[low:high], torch.full((layout.num_rows,), -1)
        position[mine] = torch.arange(high - low)
        numbers = codec.quantise(values[low:high], mine)
        blocks: dict[int, Any] = {}
        for group in layout.groups_of(everything if padded else mine):
            blocks |= _encrypted(codec, layout, group, position, numbers, padded)
        bundles.append(Bundle((position >= 0).long(), blocks, codec.parameters.fresh_bytes))
    if padded:
        terms = torch.zeros(layout.num_rows, dtype=torch.long)
        terms[everything] = 1
        bundles = [replace(bundle, terms=terms) for bundle in bundles]
    return PackedRows(codec, layout, summands, tuple(bundles), named, origin)


def _encrypted(
    codec: Codec, layout: Layout, group: int, position: Tensor, numbers: Tensor, padded: bool
) -> dict[int, Any]:
    """Return one sender's ciphertexts of a group by number; ``position`` [n] is each row's in ``numbers`` [R, D]."""
    members = layout.entry_row[layout.members(group)]
    here = position[members]
    present = here >= 0
    first, last = (int(number.item()) for number in layout.group_block[group : group + 2])
    room = int(layout.group_room[group].item())
    stream = numbers.new_zeros((last - first) * room)
    stream[: len(members) * layout.columns].view(-1, layout.columns)[present] = numbers[here[present]]
    chosen = torch.arange(last - first)
    if not padded:
        entries = layout.members(group).start + present.nonzero().squeeze(1)
        chosen = layout.blocks_of(entries) - first
    ciphertexts = codec.encrypt(stream.view(-1, room)[chosen], int(layout.group_width[group].item()))
    return dict(zip((chosen + first).tolist(), ciphertexts, strict=True))
