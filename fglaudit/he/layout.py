"""Where rows lie in ciphertexts: public, the same for every sender, so that ciphertexts can be added, and such that
every ciphertext has rows for the same receivers alone, so that it can be passed on whole.

A ciphertext cannot be taken apart without a product. Rows are therefore put into groups, each a run of ciphertexts with
fields of one width. Where a row has several receivers (sums over two hops), either every receiver gets a copy of its
own (one group per receiver), or rows with the same set of receivers share a group; the plan with fewer ciphertexts is
taken, or the first where a ciphertext must not have two receivers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.he.fixed_point import SLOT_BITS, per_slot

_MOST_INCIDENCES = 10**8
"""Rows times clients up to which sets of receivers are looked for."""


@dataclass(frozen=True)
class Layout:
    """Entries are the places that rows have: one per row, or one per row and receiver.

    Attributes:
        columns: numbers in a row.
        slots: of a ciphertext.
        entry_row, entry_group: by entry [E], ordered by group and row.
        entry_start: first field within the group [E].
        group_width: bits of a field by group [G]; 0 where a slot holds one number (ckks).
        group_room: fields of one ciphertext by group [G].
        group_block: number of the first ciphertext of each group [G + 1].
        pair_code: ``receiver * rows + row`` of every row and receiver [n], ascending.
        pair_entry: the place from which that receiver reads that row [n].
        num_rows: largest row id + 1.
    """

    columns: int
    slots: int
    entry_row: Tensor
    entry_group: Tensor
    entry_start: Tensor
    group_width: Tensor
    group_room: Tensor
    group_block: Tensor
    pair_code: Tensor
    pair_entry: Tensor
    num_rows: int

    @staticmethod
    def of(
        rows: Tensor,
        receivers: Tensor,
        width: Tensor,
        columns: int,
        slots: int,
        slot_bits: int = SLOT_BITS,
        *,
        apart: bool = False,
    ) -> Layout:
        """Lay out ``rows`` [n] for ``receivers`` [n].

        Args:
            width: bits of a field by row id, or 0; see ``group_width``.
            columns: numbers in a row.
            slots: of a ciphertext, each of ``slot_bits`` bits.
            apart: whether every ciphertext must have one receiver alone.
        """
        size = columns, slots, slot_bits
        num_rows = len(width)
        code, order = torch.sort(receivers * num_rows + rows)
        copied = Layout._planned(rows[order], receivers[order], torch.arange(len(rows)), code, width, size)
        unique, inverse = torch.unique(rows[order], return_inverse=True)
        clients = int(receivers.max().item()) + 1
        if apart or len(unique) == len(rows) or len(unique) * clients > _MOST_INCIDENCES:
            return copied
        incidence = torch.zeros(len(unique), clients, dtype=torch.bool)
        incidence[inverse, receivers[order]] = True
        _, audience = torch.unique(incidence, dim=0, return_inverse=True)
        shared = Layout._planned(unique, audience, inverse, code, width, size)
        return shared if shared.blocks < copied.blocks else copied

    @staticmethod
    def _planned(
        rows: Tensor,
        audience: Tensor,
        pair_entry: Tensor,
        pair_code: Tensor,
        width: Tensor,
        size: tuple[int, int, int],
    ) -> Layout:
        """Lay out entries of ``rows`` [E], in one group where ``audience`` [E] and width agree.

        Args:
            pair_entry, pair_code: by row and receiver [n], see the class.
            width: bits of a field by row id.
            size: numbers in a row, slots of a ciphertext, bits of a slot."""
        columns, slots, slot_bits = size
        kinds = torch.stack([audience, width[rows]], 1)
        groups, group = torch.unique(kinds, dim=0, return_inverse=True)
        order = torch.argsort(group * len(width) + rows)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        sizes = torch.bincount(group, minlength=len(groups))
        first = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        start = (torch.arange(len(order)) - first[group[order]]) * columns
        room = torch.tensor([slots * fields(int(w), slot_bits) for w in groups[:, 1].tolist()])
        blocks = torch.div(sizes * columns + room - 1, room, rounding_mode="floor")
        return Layout(
            columns,
            slots,
            rows[order],
            group[order],
            start,
            groups[:, 1],
            room,
            torch.cat([blocks.new_zeros(1), blocks.cumsum(0)]),
            pair_code,
            place[pair_entry],
            len(width),
        )

    @property
    def blocks(self) -> int:
        """Ciphertexts that hold all rows once each place."""
        return int(self.group_block[-1].item())

    def receivers_of_blocks(self) -> Tensor:
        """Return how many clients each ciphertext is for."""
        first, last = self.block_range(self.pair_entry)
        receiver = torch.div(self.pair_code, self.num_rows, rounding_mode="floor")
        pair = torch.repeat_interleave(torch.arange(len(first)), last - first + 1)
        block = torch.arange(len(pair)) - torch.searchsorted(pair, pair) + first[pair]
        return torch.bincount(torch.unique(torch.stack([block, receiver[pair]]), dim=1)[0], minlength=self.blocks)

    def groups_of(self, rows: Tensor) -> list[int]:
        """Return the groups with a place for one of ``rows``."""
        wanted = torch.zeros(self.num_rows, dtype=torch.bool)
        wanted[rows] = True
        groups: list[int] = torch.unique(self.entry_group[wanted[self.entry_row]]).tolist()
        return groups

    def members(self, group: int) -> slice:
        """Entries of ``group``."""
        low, high = torch.searchsorted(self.entry_group, torch.tensor([group, group + 1])).tolist()
        return slice(low, high)

    def entries_for(self, rows: Tensor, receiver: int) -> Tensor:
        """Return the places [R] from which ``receiver`` reads ``rows`` [R].

        Raises:
            FglauditError: for a row that is not for the receiver.
        """
        wanted = receiver * self.num_rows + rows
        place = torch.searchsorted(self.pair_code, wanted).clamp(max=len(self.pair_code) - 1)
        stray = self.pair_code[place] != wanted
        if bool(stray.any()):
            raise FglauditError(
                f"a ciphertext goes to the receivers it was made for; row {int(rows[stray][0])} was not made for client"
                f" {receiver}; the protocol's `aggregates` must name every row's receivers"
            )
        return self.pair_entry[place]

    def any_entry(self, rows: Tensor) -> Tensor:
        """Return one place [R] of each of ``rows`` [R]."""
        first = torch.full((self.num_rows,), -1)
        first[self.entry_row] = torch.arange(len(self.entry_row))
        return first[rows]

    def block_range(self, entries: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and the last ciphertext [E] of ``entries`` [E]."""
        group, start = self.entry_group[entries], self.entry_start[entries]
        room, first = self.group_room[group], self.group_block[group]
        last = start + self.columns - 1
        return first + torch.div(start, room, rounding_mode="floor"), first + torch.div(
            last, room, rounding_mode="floor"
        )

    def blocks_of(self, entries: Tensor) -> Tensor:
        """Return the ciphertexts that ``entries`` lie in, ascending."""
        first, last = self.block_range(entries)
        edges = torch.zeros(self.blocks + 1, dtype=torch.long)
        edges.index_add_(0, first, torch.ones_like(first))
        edges.index_add_(0, last + 1, -torch.ones_like(last))
        return (edges[:-1].cumsum(0) > 0).nonzero().squeeze(1)


def fields(width: int, slot_bits: int = SLOT_BITS) -> int:
    """Return the fields of a slot with fields of ``width`` bits; one where ``width`` is 0."""
    return per_slot(width, slot_bits) if width else 1
