"""Masks that several messages share: what is added to two of them falls out of their difference.

Which messages share a mask the public code shows: a fresh bind of the defense adds the same to made-up values in their
places, whatever these are. Of each message the protocol tells what it may be without a mask (:mod:`partly_known`); the
mask of a group is the one under which all its messages are possible values, the likeliest of those where several are.
One message of known rows tells the mask of its group as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.attacks.learned.cleaned_messages import FieldMap
from fglaudit.attacks.learned.entries import entries, upwards, with_rows
from fglaudit.attacks.learned.linear_messages import as_sums, asking_rows, between
from fglaudit.attacks.learned.maps.row_map import Learned, RowMap
from fglaudit.attacks.learned.partly_known import PartlyKnown, partly_known, possible, tolerance
from fglaudit.attacks.learned.probes import Probes, Seen, drawn_alike, keyed, known_messages, made_up_rows
from fglaudit.graph import FeatureKind
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import copied, split

_DRAWS = 16
_BEST = 4
"""Messages of a group whose possible values are tried."""
_SAME = 1e-4
"""Of the size of a mask."""
_CLOSE = 10.0
"""Least deviation of a message, in units of what tells possible values apart; twice that is known beforehand."""
_MOSTLY = 0.9
"""Share of the entries of a group that must be possible values."""
_MOST = 2**28
"""Values compared with possible ones."""


def unmasked(
    probes: Probes, payload: type[Payload], direction: bool, name: str, rng: torch.Generator
) -> FieldMap | None:
    """Return the map that takes the masks off the messages of the first batches; None where no two share one, or not
    all messages in this direction are among those batches."""
    groups = _groups(probes, name, rng)
    if groups is None or sum(_is(b, direction) for b in probes.view.messages.of(payload)) != len(probes.wire):
        return None
    view, drawing = probes.view, split(rng, "possible values")
    asked = list(asking_rows(view, drawing))
    more = known_messages(view, payload, [*made_up_rows(view, _DRAWS, drawing), *asked], drawing)
    if more is None:
        return None
    seen, drawn = more
    labels = _labelled(probes, groups, name, direction)
    alike, told = drawn_alike(seen, drawn, (direction, name)), drawn_alike(labels, drawn, (direction, name))
    if alike is None or told is None:
        return None
    use = alike[1].isfinite().all(1) & (alike[0][:_DRAWS].abs().amax((0, 2)) > 0)
    made, sent, group = alike[0][:, use], alike[1][use], told[1][use][:, 0].round().long()
    known = partly_known(made[:_DRAWS], sent)
    if known is None or known.steps is None or len(known.sent) == 0:
        return None
    if (sums := as_sums(view, asked, made[_DRAWS:])) is not None:
        mean, variance = between(sums, sent, group, view.public.features is not FeatureKind.REAL)
        known = dataclasses.replace(known, mean=mean, variance=variance.clamp(min=(_CLOSE * tolerance(known)) ** 2))
    count = int(torch.cat(groups).max().item()) + 1
    masks = _masks(known, group, count)
    if masks is None:
        return None
    sure = _sure(known, masks, group, count)
    by_batch = tuple(Learned("masks that are shared", 0.0, _without(masks[group])) for group in groups)
    kept = tuple(sure[group] for group in groups)
    unsure = known.variance[sure[group]].mean() if bool(sure.any()) else known.variance.mean()
    left = float(unsure.sqrt().item())
    coarse = left > tolerance(known)
    map_ = FieldMap(by_batch[0], known.sent.shape[1], left, coarse=coarse, by_batch=by_batch, of_run=True)
    return map_ if all(bool(rows.all()) for rows in kept) else dataclasses.replace(map_, kept=kept)


def _is(batch: MessageBatch, direction: bool) -> bool:
    return len(batch.senders) > 0 and upwards(batch) is direction


def _without(mask: Tensor) -> RowMap:
    return lambda sent: sent - mask if sent.shape == mask.shape else sent


def _groups(probes: Probes, name: str, rng: torch.Generator) -> list[Tensor] | None:
    """Return by batch which mask is added to each row, by number; None where what is added depends on the values, or no
    two rows share it."""
    if _added(probes.fewer(), name, split(rng, "few")) is None:
        return None
    found = []
    for bind in range(2):
        added = _added(probes, name, split(rng, f"bind {bind}"))
        if added is None:
            return None
        found.append(_alike(added, rng))
    one, other = found
    if not torch.equal(one, other) or int(one.max().item()) + 1 == len(one):
        return None
    counts = [len(entries(batch, name, probes.view.public.num_features).rows) for batch in probes.wire]
    return list(torch.split(one, counts))


def _added(probes: Probes, name: str, bind: torch.Generator) -> Tensor | None:
    """Return what one bind of the defense adds to each row [n, D]; None where that depends on the values."""
    added = []
    for values in range(2):
        pairs = probes.pairs("normal", split(copied(bind), f"values {values}"), bind=copied(bind))
        added.append(torch.cat([sent - plain for plain, sent in (batch[name] for batch in pairs)]))
    size = added[0].abs().amax(1, keepdim=True)
    if not bool(((added[0] - added[1]).abs() <= _SAME * (size + 1)).all()) or float(size.min().item()) <= _SAME:
        return None
    return added[0]


def _alike(rows: Tensor, rng: torch.Generator) -> Tensor:
    """Return the number of the group of each row [n], in order of appearance; alike are rows up to rounding."""
    code = rows @ torch.randn(rows.shape[1], generator=rng, dtype=rows.dtype)
    order = code.argsort()
    ordered = rows[order]
    apart = (ordered.diff(dim=0).abs().amax(1) > _SAME * (1 + ordered[1:].abs().amax(1))).long()
    number = torch.empty_like(order)
    number[order] = torch.cat([apart.new_zeros(1), apart]).cumsum(0)
    first = torch.full((int(number.max().item()) + 1,), len(rows)).scatter_reduce(
        0, number, torch.arange(len(rows)), "amin"
    )
    return first.argsort().argsort()[number]


def _labelled(probes: Probes, groups: Sequence[Tensor], name: str, direction: bool) -> Seen:
    """Return the number of the mask in the place of every row."""
    features = probes.view.public.num_features
    batches = []
    for batch, group in zip(probes.wire, groups, strict=True):
        width = entries(batch, name, features).rows.shape[1]
        batches.append(with_rows(batch, {name: group[:, None].expand(-1, width).double()}, features))
    return {key: rows for key, rows in keyed(batches, features).items() if key == (direction, name)}


def _masks(known: PartlyKnown, group: Tensor, count: int) -> Tensor | None:
    """Return the mask of each of ``count`` groups [count, D]: of the values possible for its best known message, those
    under which most of its messages are possible, the likeliest of several."""
    assert known.steps is not None
    levels, width = known.steps.shape[1], known.sent.shape[1]
    if known.sent.numel() * levels > _MOST:
        return None
    best = _best_known(known.variance.mean(1), group, count)
    near = tolerance(known)
    masks = known.sent.new_zeros(count, width)
    score = known.sent.new_full((count, width), -float("inf"))
    for ranked in best:
        for level in range(levels):
            mask = known.sent[ranked] - known.low[ranked] - known.steps[ranked, level][:, None]
            cleaned = known.sent - mask[group]
            hit = ((cleaned - possible(known, cleaned)).abs() <= near).to(mask)
            likely = -(cleaned - known.mean).square() / (2 * known.variance)
            worth = mask.new_zeros(count, width).index_add_(0, group, hit + _squashed(likely))
            better = worth > score
            masks, score = torch.where(better, mask, masks), torch.where(better, worth, score)
    return masks


def _sure(known: PartlyKnown, masks: Tensor, group: Tensor, count: int) -> Tensor:
    """Return whether the mask of each group is told [count]: under it several messages are possible, or one is known
    beforehand. Any mask leaves something possible of one message alone."""
    cleaned = known.sent - masks[group]
    possibly = ((cleaned - possible(known, cleaned)).abs() <= tolerance(known)).to(masks).mean(1)
    size = torch.bincount(group, minlength=count)
    hits = masks.new_zeros(count).index_add_(0, group, possibly) / size.clamp(min=1)
    given = torch.zeros(count, dtype=torch.bool, device=group.device)
    given[group[known.variance.amax(1) <= (2 * _CLOSE * tolerance(known)) ** 2]] = True
    return given | ((size > 1) & (hits >= _MOSTLY))


def _best_known(unsure: Tensor, group: Tensor, count: int) -> list[Tensor]:
    """Return the messages of each group of which most is known: the best of every group [count], the second best, and
    so on; its last one where it has no more."""
    order = unsure.argsort(stable=True)
    order = order[group[order].argsort(stable=True)]
    size = torch.bincount(group, minlength=count)
    start = size.cumsum(0) - size
    return [order[start + torch.minimum(torch.full_like(size, rank), (size - 1).clamp(min=0))] for rank in range(_BEST)]


def _squashed(likely: Tensor) -> Tensor:
    """Return log-likelihoods as weights below those of possible values, in the same order."""
    return likely.clamp(min=-50.0) / 100.0
