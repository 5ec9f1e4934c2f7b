"""The messages that a canary moves most, with the canary and without, and copies of them for many replays at once.

Only entries that the canary reaches are replayed, those that it moves most; of features that it does not touch none, if
the defense states noise for every coordinate alone. That is the mechanism on fewer rows, for which its guarantee must
hold as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.empirical.replays.capture import entry_ids
from fglaudit.empirical.replays.stated_noise import StatedNoise
from fglaudit.payloads import MessageBatch


@dataclass(frozen=True)
class CapturedPair:
    """Messages with the canary and without.

    Attributes:
        present, absent: the same entries of the same batches.
        numbers: how many numbers get noise in one replay.
        divergence: between both worlds, see :func:`divergence_of`.
    """

    present: list[MessageBatch]
    absent: list[MessageBatch]
    numbers: int
    divergence: float


def strongest(
    present: list[MessageBatch], absent: list[MessageBatch], noise: StatedNoise | None, limit: int
) -> CapturedPair:
    """Return the entries that differ most, as many as have ``limit`` numbers together: looking at fewer is no error."""
    shown = [divergence_of(one, other, noise) for one, other in zip(present, absent, strict=True)]
    fields = noise.fields if noise else ()
    sizes = [
        torch.full(d.shape, sum(v.shape[1:].numel() for v in _values(b, fields).values()))
        for b, d in zip(present, shown, strict=True)
    ]
    if not shown:
        return CapturedPair([], [], 0, 0.0)
    divergence, numbers = torch.cat(shown), torch.cat(sizes)
    order = torch.argsort(divergence, descending=True, stable=True)
    order = order[(numbers[order].cumsum(0) <= limit) & (divergence[order] > 0)]
    keep = torch.zeros(len(divergence), dtype=torch.bool)
    keep[order] = True
    masks = torch.split(keep, [len(d) for d in shown])
    kept = [
        [b.select_entries(m) for b, m in zip(world, masks, strict=True) if bool(m.any())] for world in (present, absent)
    ]
    return CapturedPair(kept[0], kept[1], int(numbers[order].sum().item()), float(divergence[order].sum().item()))


def divergence_of(one: MessageBatch, other: MessageBatch, noise: StatedNoise | None) -> Tensor:
    """Return the Kullback-Leibler divergence of every entry [rows]; for unknown noise half the squared distance."""
    ids = entry_ids(one)
    if not torch.equal(ids, entry_ids(other)):
        raise ValueError("the messages must be about the same nodes with and without the canary")
    fields, scale = (noise.fields, noise.scale) if noise else ((), 1.0)
    total = torch.zeros(len(ids), dtype=torch.float64)
    for name, value in _values(one, fields).items():
        shift = ((value.double() - _values(other, fields)[name].double()).abs() / scale).flatten(1)
        laplace = noise is not None and noise.distribution == "laplace"
        total += (shift - 1 + (-shift).exp() if laplace else shift.square() / 2).sum(1).cpu()
    return total


def _values(batch: MessageBatch, fields: Sequence[str]) -> dict[str, Tensor]:
    """Return the fields that get noise; all floating-point ones where none are named."""
    tensors = batch.payload.tensors()
    return {n: v for n, v in tensors.items() if (n in fields if fields else v.is_floating_point())}


def repeated(batch: MessageBatch, copies: int) -> MessageBatch:
    """Return the messages ``copies`` times after one another, as messages of their own."""
    entries = next(iter(batch.payload.tensors().values()))
    payload = batch.payload.select(torch.arange(len(entries), device=entries.device).repeat(copies))
    splits = None
    if batch.splits is not None:
        splits = torch.cat([batch.splits.new_zeros(1), batch.splits.diff().repeat(copies).cumsum(0)])
    return MessageBatch(batch.round, batch.senders.repeat(copies), batch.receivers.repeat(copies), payload, splits)
