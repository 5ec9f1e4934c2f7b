"""What one record moves beside what its protocol states: how many messages it enters, and how many losses.

A clip of every message, or a report of every node, hides a record that enters one of them. Losses of local training are
counted where they differ, not where a protocol says that features reach them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fglaudit.context import Context, Release
from fglaudit.empirical.fields.forced_replay import Trace
from fglaudit.empirical.fields.moves import aligned
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.accounted import Noised

_RELATIVE, _ABSOLUTE = 1e-4, 1e-6
"""By how much numbers may differ that are computed beside others."""


def messages_of_one(context: Context, noised: Noised, one: Trace, other: Trace) -> int:
    """Return how many messages of one round a record entered, at most, of a release that states that it enters one; 0
    where it states no such thing, or where other clients hold the record's nodes too."""
    release = _release(context, noised)
    if release is None or not release.one_message or context.holders > 1:
        return 0
    by_round: dict[int, set[tuple[int, ...]]] = {}
    for before, after in zip(one.made, other.made, strict=False):
        if not aligned(before, after):
            break
        if type(before.payload) is release.payload and _by_server(before) is release.by_server:
            by_round.setdefault(before.round, set()).update(_entered(release, before, after))
    return max(map(len, by_round.values()), default=0)


def changed_losses(one: Trace, other: Trace) -> int:
    """Return how many losses' gradients of one local step a record changed, at most: all before them was the same."""
    return max((int(changed.sum()) for changed in changed_in_steps(one, other)), default=0)


def changed_in_steps(one: Trace, other: Trace) -> Iterator[Tensor]:
    """Yield of every local step which losses' gradients of which model differ [E, K]."""
    for before, after in zip(one.losses, other.losses, strict=False):
        if before.shape != after.shape:
            break
        yield ~torch.isclose(before, after, _RELATIVE, _ABSOLUTE, equal_nan=True).all(-1)


def _release(context: Context, noised: Noised) -> Release | None:
    listed = (r for r in context.releases if r.payload.__name__ == noised.payload and r.by_server is noised.by_server)
    return next(listed, None)


def _by_server(batch: MessageBatch) -> bool:
    return bool((batch.senders == SERVER).all())


def _entered(release: Release, before: MessageBatch, after: MessageBatch) -> set[tuple[int, ...]]:
    """Return which messages differ: by sender, and where every entry is one record's by what says whose it is."""
    message = before.entry_messages().cpu()
    whose = [before.senders.cpu()[message]]
    if release.payload.ragged:
        whose += [v.cpu() for v in before.payload.tensors().values() if v.dim() == 1 and not v.is_floating_point()]
    differs = _differs(release, before.payload, after.payload)
    return set(map(tuple, torch.stack([each.long() for each in whose], 1)[differs].tolist()))


def _differs(release: Release, one: Payload, other: Payload) -> Tensor:
    """Return which entries of the leading axis differ by more than roundoff, in what gets noise."""
    fields, found = other.tensors(), None
    for name, value in one.tensors().items():
        if value.is_floating_point() and (not release.fields or name in release.fields):
            close = torch.isclose(value.double(), fields[name].double(), _RELATIVE, _ABSOLUTE, equal_nan=True)
            moved = ~close.flatten(1).all(1).cpu() if value.dim() > 1 else ~close.cpu()
            found = moved if found is None else found | moved
    return torch.zeros(0, dtype=torch.bool) if found is None else found
