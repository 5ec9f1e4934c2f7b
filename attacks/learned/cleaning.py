"""How messages were before a defense changed them, as far as that can be learned from pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import sees_deliveries
from fglaudit.attacks.learned.cleaned_messages import FieldMap, Key, largest
from fglaudit.attacks.learned.entries import entries, float_fields, upwards
from fglaudit.attacks.learned.node_totals import Totals
from fglaudit.attacks.learned.partly_known import confirmed, misfit, partly_known, signed_order, turned
from fglaudit.attacks.learned.place_maps import MOST_MIXED, best_place_map
from fglaudit.attacks.learned.probes import (
    Probes,
    Seen,
    apart,
    drawn_alike,
    known_draws,
    known_pairs,
    made_up_graph,
    rehearsed_pair,
)
from fglaudit.attacks.learned.row_maps import Learned, best_map, identity, relative_error, relearned
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import derive, split
from fglaudit.view import View

GOOD = 1e-4
"""Relative error below which a map needs no rival."""
WORTH = 0.1
"""Relative error above which nothing was learned."""
_BATCHES = 3
_LEARNED_ROWS = 3
"""Rows per column to learn from."""
_FEWEST_ROWS = 512
_MORE = 8
"""Rehearsals to learn from."""
_SPARE = 1.3
"""Rows per column that rehearsals should have."""
_PROBES = 12
_GRIDS = 400
_GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, leave no gap much larger than the others: together grids see every value."""
_ENTRIES = 2**19
"""Entries to see for a table of all values."""
_MIXED = 64
_VALUES = 2**25
_EXACT = 1e-9
_SURE = 3
"""Pairs per column from which a map is known everywhere."""
_DRAWS = 8
"""Rehearsals with other rows in the places of those that are not known."""
_NOTHING = 4.0
"""Of the root mean square of what a map leaves: below that an entry is 0."""
_MOST_LEFT = 1.5
"""The same of the most that it leaves, if that is small: numbers of the wire's precision err by their row's size."""
_SMALL = 1e-3
"""Of the deviation of plain entries."""
_COARSE = 1e-10
"""Relative error of numbers with a few more digits lost than the wire's precision has."""
_LARGE = 10**5
BatchPair = tuple[MessageBatch, MessageBatch]
Drawn = list[dict[str, tuple[Tensor, Tensor]]]
"""By batch and field (plain, sent) [n, D], of one probe."""


def first_batches(view: View, payload: type[Payload], direction: bool) -> tuple[MessageBatch, ...]:
    """Return the first batches in one direction, few enough to learn from."""
    found: list[MessageBatch] = []
    values = 0
    for batch in view.messages.of(payload):
        if upwards(batch) is not direction or len(batch.senders) == 0:
            continue
        values += batch.payload.numbers()
        if found and values > _VALUES:
            break
        found.append(_fewer(batch) if values > _VALUES else batch)
        if len(found) == _BATCHES:
            break
    return tuple(found)


def _fewer(batch: MessageBatch) -> MessageBatch:
    """Return the first messages of a very large batch."""
    per_message = batch.payload.numbers() / len(batch.senders)
    most = max(1, int(_VALUES / per_message))
    return batch.select(torch.arange(len(batch.senders)) < most)


def learn_maps(view: View, payload: type[Payload], rng: torch.Generator, device: torch.device) -> dict[Key, FieldMap]:
    """Return how the fields of ``payload`` that the defense changed are cleaned; those of which nothing was learned
    are left out."""
    found: dict[Key, FieldMap] = {}
    wires = {direction: first_batches(view, payload, direction) for direction in (True, False)}
    first = next((wire[0] for wire in wires.values() if wire), None)
    if first is None:
        return {}
    large = first.payload.numbers() / len(first.senders) > _LARGE
    graphs = [made_up_graph(view, large, split(rng, f"graph {i}")) for i in range(2)]
    graph, until = graphs[0], min(1, first.round)
    rehearsals = [rehearsed_pair(view, made, payload, until, split(rng, "rehearsal")) for made in graphs]
    features = view.public.num_features
    for direction, wire in wires.items():
        if not wire:
            continue
        pools = {name: _pool(rehearsals[0], wire, direction, name, features) for name in float_fields(wire[0])}
        parts = {name: apart(pool, split(rng, "held rows")) for name, pool in pools.items()}
        probes = Probes(view, graph, wire, {n: p for n, (p, _) in parts.items()}, {n: h for n, (_, h) in parts.items()})
        found |= {(direction, n): m for n, m in _public(probes, split(rng, "public"), device).items()}
        for name in float_fields(wire[0]):
            again = _joined(rehearsals[1], direction, name, features)
            if (direction, name) in found and _holds(found[direction, name], again):
                continue
            taught = [rehearsals[0], *rehearsals[2:]]
            while _too_few(pairs := [_joined(r, direction, name, features) for r in taught]) and len(taught) < _MORE:
                made = made_up_graph(view, large, split(rng, f"graph {len(rehearsals)}"))
                rehearsals.append(rehearsed_pair(view, made, payload, until, split(rng, "rehearsal")))
                taught.append(rehearsals[-1])
            if (learned := _repeated(pairs, again, device)) is not None:
                found[direction, name] = learned
    return found | _secret(view, payload, wires, found, split(rng, "known"), device)


def are_totals(view: View, payload: type[Payload], maps: Mapping[Key, FieldMap], rng: torch.Generator) -> bool:
    """Whether totals of ``payload`` can be made again of parts: all uploads are seen and cleaned, and undefended the
    server sends their sums by node."""
    if not sees_deliveries(view) or any(m.kept for m in maps.values()) or not any(up for up, _ in maps):
        return False
    if not first_batches(view, payload, True) or not first_batches(view, payload, False):
        return False
    plain = [before for before, _ in rehearsed_pair(view, made_up_graph(view, True, rng), payload, 0, rng)]
    added = Totals()
    checked = False
    for batch in plain:
        if upwards(batch):
            added.followed(batch)
            continue
        again = added.made_again(batch)
        for name in float_fields(batch):
            one, two = batch.payload.tensors()[name], again.payload.tensors()[name]
            if again is batch or not torch.allclose(one, two, rtol=1e-3, atol=1e-4):
                return False
            checked = True
    return checked


def _pool(
    rehearsed: Sequence[BatchPair], wire: tuple[MessageBatch, ...], direction: bool, name: str, features: int
) -> Tensor:
    """Return rows as honest messages have them; where none were rehearsed, those that were sent."""
    width = entries(wire[0], name, features).rows.shape[1]
    held = [entries(b, name, features).rows for b, _ in rehearsed if upwards(b) is direction]
    rows = [r for r in held if r.shape[1] == width and len(r)]
    return torch.cat(rows or [entries(b, name, features).rows for b in wire if len(b.senders)])


def _public(probes: Probes, rng: torch.Generator, device: torch.device) -> dict[str, FieldMap]:
    """Return the maps that undo what the public code does, tried on another bind of the defense."""
    drawn = [probes.pairs(kind, rng) for kind in ("normal", "uniform", "typical")]
    held = probes.pairs("held", rng)
    names = [name for name in float_fields(probes.wire[0]) if _one_width(name, held)]
    left = [n for n in names if not all(torch.equal(*batch[n]) for part in (*drawn, held) for batch in part)]
    if not left:  # the defense leaves them alone
        return {}
    width = max(held[0][name][0].shape[1] for name in left)
    rows = max(1, sum(len(batch[left[0]][0]) for batch in held))
    while len(drawn) < _PROBES and rows * (len(drawn) - 1) < 1.3 * width:
        drawn.append(probes.pairs("normal", rng))
    found = {name: made for name in left if (made := _everywhere(name, drawn, held, rng, device)) is not None}
    left = [name for name in left if name not in found or found[name].learned.error > GOOD]
    if not left:
        return found
    # What few examples do not show may be a table of all values, or depend on where a row stands.
    grids, tabled = list(drawn), probes.fixed(left, rng)
    while tabled and len(grids) < _GRIDS and (len(grids) - 2) * rows * width < _ENTRIES:
        grids.append(probes.pairs("grid", rng, len(grids) * _GOLDEN % 1))
    for name in tabled:
        made = _everywhere(name, grids, held, rng, device, simple=True)
        if made is not None and _is_better(made, found.get(name)):
            found[name] = made
    left = [name for name in left if name not in found or found[name].learned.error > GOOD]
    mixed = max(len(batch[names[0]][0]) for batch in held)
    while left and len(drawn) < _MIXED and mixed <= MOST_MIXED and len(drawn) * width < mixed + 2:
        drawn.append(probes.pairs("normal", rng))
    for name in left:
        if (made := _by_place(name, drawn, held, probes, found.get(name))) is not None:
            found[name] = made
    return found


def _one_width(name: str, held: Drawn) -> bool:
    return all(batch[name][0].shape[1] == held[0][name][0].shape[1] for batch in held)


def _is_better(made: FieldMap, than: FieldMap | None) -> bool:
    return than is None or made.learned.error < than.learned.error


def _everywhere(
    name: str,
    drawn: Sequence[Drawn],
    held: Drawn,
    rng: torch.Generator,
    device: torch.device,
    *,
    simple: bool = False,
) -> FieldMap | None:
    """Return the map of every row, wherever it stands."""
    together = [tuple(torch.cat([batch[name][i] for batch in part]) for i in (0, 1)) for part in (*drawn, held)]
    plain, sent = (torch.cat([pair[i] for pair in together[:-1]]) for i in (0, 1))
    most = max(_FEWEST_ROWS, _LEARNED_ROWS * plain.shape[1], 2 * _ENTRIES // plain.shape[1])
    order = torch.randperm(len(plain), generator=rng)[:most]
    last = torch.randperm(len(together[-1][0]), generator=rng)[: max(_FEWEST_ROWS, plain.shape[1] // 2)]
    some = [t[order].to(device) for t in (plain, sent)] + [t[last].to(device) for t in together[-1]]
    best = best_map(*some, simple=simple)
    return _field_map(_on(best, device), *(t[last] for t in together[-1])) if best.error <= WORTH else None


def _by_place(
    name: str, drawn: Sequence[Drawn], held: Drawn, probes: Probes, found: FieldMap | None
) -> FieldMap | None:
    """Return the maps of the rows of each batch by where they stand, if they leave less than ``found``, which holds
    everywhere; which rows are sent as they are, where nothing holds."""
    plain = torch.cat([batch[name][0] for batch in held])
    unless = float("inf") if found is None else found.learned.error
    by_batch = []
    for number, batch in enumerate(probes.wire):
        pairs = [part[number][name] for part in drawn]
        senders = entries(batch, name, probes.view.public.num_features).senders
        by_batch.append(best_place_map(pairs, held[number][name], senders, unless))
    if all(made is not None for made in by_batch) and max(m.error for m in by_batch if m) <= WORTH:
        maps = tuple(made for made in by_batch if made is not None)
        worst = max(maps, key=lambda made: made.error)
        return dataclasses.replace(_field_map(worst, plain), by_batch=maps)
    kept = tuple(
        torch.stack([((s - p).abs().amax(1) <= _EXACT * (1 + p.abs().amax(1))) for p, s in parts]).all(0)
        for parts in zip(*([batch[name] for batch in part] for part in (*drawn, held)), strict=True)
    )
    if any(bool(k.any()) for k in kept):
        return FieldMap(Learned("rows sent as they are", 0.0, identity), plain.shape[1], kept=kept)
    return None


def _field_map(learned: Learned, plain: Tensor, sent: Tensor | None = None) -> FieldMap:
    """Return the map with what it leaves of rows like ``plain`` [n, D], by what it makes of ``sent`` where that is
    given."""
    spread = float((plain - plain.mean(0)).square().mean().sqrt().item())
    left = learned.error**0.5 * spread
    if sent is None or len(plain) == 0:
        return FieldMap(learned, plain.shape[1], left, 0.0, learned.error > _COARSE)
    scale = largest(sent)
    wrong = (learned.apply(sent) - plain).abs()
    nothing = _NOTHING * left / max(1e-30, float(scale.median().item()))
    if float(wrong.max().item()) <= _SMALL * spread:
        nothing = max(nothing, _MOST_LEFT * float((wrong / scale).max().item()))
    return FieldMap(learned, plain.shape[1], left, nothing, learned.error > _COARSE)


def _on(learned: Learned, device: torch.device) -> Learned:
    """Return a map that takes and gives tensors on the CPU."""
    if device.type == "cpu":
        return learned
    return Learned(learned.name, learned.error, lambda rows: learned.apply(rows.to(device)).cpu())


def _joined(pairs: Sequence[BatchPair], direction: bool, name: str, features: int) -> tuple[Tensor, Tensor] | None:
    """Return (plain, sent) [n, D] of all batches in one direction; None where there are none, or nothing changed."""
    held = [
        (entries(before, name, features).rows, entries(after, name, features).rows)
        for before, after in pairs
        if upwards(before) is direction and upwards(after) is direction
    ]
    same = [(one, two) for one, two in held if one.shape == two.shape]
    if not same or all(torch.equal(one, two) for one, two in same):
        return None
    return torch.cat([one for one, _ in same]), torch.cat([two for _, two in same])


def _holds(found: FieldMap, pair: tuple[Tensor, Tensor] | None) -> bool:
    """Whether a map that made-up values taught holds in a rehearsal too, where secrets are drawn in the order in which
    the protocol sends; what depends on the place cannot be asked on another graph."""
    if pair is None or found.by_batch or found.kept or pair[0].shape[1] != found.width:
        return True
    return relative_error(pair[0], found.learned.apply(pair[1])) <= WORTH


def _too_few(pairs: Sequence[tuple[Tensor, Tensor] | None]) -> bool:
    """Whether rehearsals have pairs, but fewer than an affine map has rows."""
    held = [pair for pair in pairs if pair is not None]
    return bool(held) and sum(len(plain) for plain, _ in held) < _SPARE * held[0][0].shape[1]


def _repeated(
    taught: Sequence[tuple[Tensor, Tensor] | None], again: tuple[Tensor, Tensor] | None, device: torch.device
) -> FieldMap | None:
    """Return the map learned from rehearsals if it holds in another, in which the defense drew other secrets."""
    if again is None:
        return None
    pairs = [pair for pair in taught if pair is not None and pair[0].shape[1:] == again[0].shape[1:]]
    if not pairs:
        return None
    plain, sent = (torch.cat([pair[i] for pair in pairs]) for i in (0, 1))
    best = best_map(*(t.to(device) for t in (plain, sent, *again)), simple=True)
    return _field_map(_on(best, device), *again) if best.error <= WORTH else None


def _from_wire(plain: Tensor, sent: Tensor, device: torch.device) -> FieldMap | None:
    """Return the map learned from pairs on the wire, if they are enough to learn one; learned again with those that
    were held out."""
    cut = max(1, len(plain) // 5)
    if len(plain) < 2 * cut + 2:
        return None
    order = torch.randperm(len(plain), generator=derive(0, "pairs on the wire"))
    z, y = plain[order].to(device), sent[order].to(device)
    best = best_map(z[cut:], y[cut:], z[:cut], y[:cut])
    if best.name == "nothing" or best.error > 0.5 * min(1.0, relative_error(z[:cut], y[:cut])):
        return None
    return _field_map(_on(relearned(best, z, y), device), z, y)


def _secret(
    view: View,
    payload: type[Payload],
    wires: Mapping[bool, tuple[MessageBatch, ...]],
    found: Mapping[Key, FieldMap],
    rng: torch.Generator,
    device: torch.device,
) -> dict[Key, FieldMap]:
    """Return maps of the fields that the public code did not explain, learned from what went in and came out on the
    wire itself."""
    keys = [(d, n) for d, wire in wires.items() if wire for n in float_fields(wire[0]) if (d, n) not in found]
    knows_edges = view.topology is not None or bool(view.own)
    if not keys or not knows_edges or ("release" not in view.public.hooks and "prepare" not in view.public.hooks):
        return {}
    draws = known_draws(view, payload, 2, rng)
    if draws is None:
        return {}
    pairs = known_pairs(*draws)
    learned: dict[Key, FieldMap] = {}
    for key in keys:
        if key in pairs and not torch.equal(*pairs[key]) and (made := _from_wire(*pairs[key], device)) is not None:
            learned[key] = made
    # Few pairs may all lie in the space of those that a map was learned from: others tell whether it holds outside.
    unsure = [
        k
        for k in keys
        if k not in learned or learned[k].learned.error > GOOD or len(pairs[k][0]) < _SURE * learned[k].width
    ]
    if unsure and (more := known_draws(view, payload, _DRAWS, split(rng, "more"))) is not None:
        for key in unsure:
            if (made := _from_parts(*more, key, learned.get(key), device)) is not None:
                learned[key] = made
    return learned | {key: made for key in keys if (made := _of_other_direction(key, learned, pairs)) is not None}


def _from_parts(
    seen: Seen, drawn: Sequence[Seen], key: Key, than: FieldMap | None, device: torch.device
) -> FieldMap | None:
    """Return the map learned from messages that follow in part from known rows, if it explains those better than
    ``than`` does."""
    alike = drawn_alike(seen, drawn, key)
    known = None if alike is None else partly_known(*(t.to(device) for t in alike))
    if known is None:
        return None
    made = turned(known) or signed_order(known)
    if made is None or (
        than is not None
        and not confirmed(known, made.apply)
        and misfit(known, than.learned.apply) <= misfit(known, made.apply)
    ):
        return None
    return FieldMap(_on(made, device), known.sent.shape[1])


def _of_other_direction(
    key: Key, learned: Mapping[Key, FieldMap], pairs: Mapping[Key, tuple[Tensor, Tensor]]
) -> FieldMap | None:
    """Return the map of the other direction where it serves this one better than its own: sums of what a linear map
    hid are hidden by the same map."""
    other = learned.get((not key[0], key[1]))
    if other is None:
        return None
    if key not in pairs or len(pairs[key][0]) == 0:
        return None if key in learned else other
    plain, sent = pairs[key]
    error = relative_error(plain, other.learned.apply(sent))
    return other if error < (learned[key].learned.error if key in learned else WORTH) else None
