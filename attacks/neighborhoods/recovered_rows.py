"""Rows recovered from the messages about single neighbourhoods, before they are assigned to nodes.

A message about node i covers its closed neighbourhood: its neighbours and i itself. Whatever the masking, an attack on
it ends with b rows in no meaningful order; :mod:`fglaudit.attacks.neighborhoods.row_assignment` then assigns them to
nodes. Only i's own row is identified: it is the one that M1 holds for every neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.graph import first_of_each
from fglaudit.payloads import Payload, RawFeatures
from fglaudit.structure import Attention
from fglaudit.view import View

_LONGER = 1e-3
"""By how much a row without noise may be longer than 1 through rounding."""
_OWN = 1e-2
"""Largest distance of the row in M1 from the recovered one, relative to the largest norm in the neighbourhood."""


@dataclass(frozen=True)
class NeighborhoodRows:
    """Rows of G neighbourhoods.

    Attributes:
        centers: the node each neighbourhood belongs to [G].
        group: neighbourhood of every row [R], an index into ``centers``.
        rows: [R, F], float32, as they entered the messages (scaled, noise included).
        sure: whether nothing in the messages contradicts the row [R].
        std: standard deviation of the noise on each entry of the row [R].
        own: which row is the node's own [G], -1 where that is not clear.
        members: number of rows in every message [G], of which not all need to be among those recovered.
    """

    centers: Tensor
    group: Tensor
    rows: Tensor
    sure: Tensor
    std: Tensor
    own: Tensor
    members: Tensor

    @staticmethod
    def of(nodes: Tensor, rows: Tensor, sure: Tensor, std: Tensor, center: Tensor) -> NeighborhoodRows:
        """Return equally large neighbourhoods, moved to the CPU.

        No row in a message is longer than 1: one that was found so without noise is cut down to it, and is not sure.

        Args:
            nodes: [P].
            rows: [P, b, F].
            sure, std: [P, b].
            center: row of the node itself as M1 has it [P, F].
        """
        count, size, _ = rows.shape
        if count * size == 0:
            return NeighborhoodRows.join((), rows.shape[2])
        length = torch.where(std.to(rows) > 0, 0.0, rows.norm(dim=2))
        long = length > 1 + _LONGER
        rows, sure = (
            torch.where(long[..., None], rows / length.clamp(min=1)[..., None], rows),
            sure & ~long.to(sure.device),
        )
        group = torch.arange(count).repeat_interleave(size)
        distance, place = (rows - center[:, None].to(rows)).norm(dim=2).min(1)
        near = (distance <= _OWN * rows.norm(dim=2).amax(1)) | (std > 0).any(1).to(rows.device)
        own = torch.where(near.cpu(), torch.arange(count) * size + place.cpu(), -1)
        flat = rows.flatten(0, 1).float().cpu()
        return NeighborhoodRows(
            nodes.cpu(), group, flat, sure.flatten().cpu(), std.flatten().cpu(), own, torch.full((count,), size)
        )

    @staticmethod
    def join(parts: Sequence[NeighborhoodRows], num_features: int) -> NeighborhoodRows:
        """Join batches; of a neighbourhood that was sent to several receivers the first message is kept."""
        none = torch.empty(0, dtype=torch.long)
        if not parts:
            return NeighborhoodRows(none, none, torch.empty(0, num_features), none.bool(), none.float(), none, none)
        centers = torch.cat([p.centers for p in parts])
        offsets = torch.tensor([0, *(len(p.centers) for p in parts)]).cumsum(0).tolist()
        group = torch.cat([p.group + low for p, low in zip(parts, offsets, strict=False)])
        unique, inverse, first = first_of_each(centers)
        kept = first[inverse[group]] == group
        lengths = torch.tensor([0, *(len(p.rows) for p in parts)]).cumsum(0).tolist()
        own = torch.cat([torch.where(p.own >= 0, p.own + low, -1) for p, low in zip(parts, lengths, strict=False)])[
            first
        ]
        # The last entry is that of a neighbourhood without a row of its own, also where no row was found at all.
        place = torch.cat([torch.where(kept, kept.cumsum(0) - 1, -1), none.new_full((1,), -1)])
        return NeighborhoodRows(
            unique,
            inverse[group][kept],
            torch.cat([p.rows for p in parts])[kept],
            torch.cat([p.sure for p in parts])[kept],
            torch.cat([p.std for p in parts])[kept],
            place[own],
            torch.cat([p.members for p in parts])[first],
        )


def repeat_rows(rows: Tensor, times: Tensor, size: int) -> Tensor:
    """Return ``rows`` [P, r, F], each repeated ``times`` [P, r], truncated or padded with zeros to ``size``."""
    end = times.cumsum(1)
    place = torch.arange(size, device=rows.device).expand(len(rows), -1).contiguous()
    source = torch.searchsorted(end, place, right=True)
    filled = torch.cat([rows, torch.zeros_like(rows[:, :1])], 1)
    return filled.gather(1, source[..., None].expand(-1, -1, rows.shape[2]))


def unknown_scale(view: View) -> str | None:
    """Return why it is not known how rows are scaled before they enter messages, or None."""
    stated = view.public.structure.get(Attention)
    if stated is None:
        return Attention.missing()
    if stated.rows == "smoothed":
        return "messages hold rows smoothed over the graph; taking them apart is not modelled: no sign of protection"
    if stated.rows != "unit-ball":
        return "rows are read as scaled to norm at most 1; rows as held are not modelled, and no sign of protection"
    return None


def missing_messages(view: View, *payloads: type[Payload]) -> str | None:
    """Return why there is nothing to attack in ``view``, or None."""
    mine = torch.tensor(view.observer.parties, dtype=torch.long)
    for payload in payloads:
        for batch in view.messages.of(payload):
            if bool((~torch.isin(batch.senders, mine)).any()):
                return None if payload is RawFeatures else unknown_scale(view)
    return f"the observer received no {' or '.join(p.__name__ for p in payloads)} from another party"
