"""Messages as they were before a defense changed them, as far as that can be learned from pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import sees_deliveries
from fglaudit.attacks.learned.entries import entries, float_fields, upwards, with_rows
from fglaudit.attacks.learned.node_totals import Totals
from fglaudit.attacks.learned.place_maps import MOST_MIXED, best_place_map
from fglaudit.attacks.learned.probes import Probes, known_pairs, made_up_graph, rehearsed_pair
from fglaudit.attacks.learned.row_maps import Learned, best_map, identity, learners, relative_error
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import derive, split
from fglaudit.view import Messages, View

GOOD = 1e-4
"""Relative error below which a map needs no rival."""
WORTH = 0.1
"""Relative error above which nothing was learned."""
_BATCHES = 3
_LEARNED_ROWS = 3
"""Rows per column to learn from."""
_FEWEST_ROWS = 512
_PROBES = 12
_GRIDS = 40
_ENTRIES = 2**18
"""Entries to see for a table of all values."""
_MIXED = 64
_VALUES = 2**25
_EXACT = 1e-9
_NOTHING = 4.0
"""Of what a map leaves: below that an entry is 0."""
_COARSE = 1e-10
"""Relative error of numbers with a few more digits lost than the wire's precision has."""
_LARGE = 10**5
Key = tuple[bool, str]
BatchPair = tuple[MessageBatch, MessageBatch]
Drawn = list[dict[str, tuple[Tensor, Tensor]]]
"""By batch and field (plain, sent) [n, D], of one probe."""


@dataclass(frozen=True)
class FieldMap:
    """How one field is cleaned.

    Attributes:
        learned: the map of every row; by batch where it depends on the place.
        by_batch: maps of the first batches, in order, if it does.
        kept: by batch which rows [n] are kept: the others are noise.
        width: D; messages of another width are left as they are.
        left: root mean square of what the map leaves.
        coarse: whether that is more than numbers of the wire's precision have anyway.
    """

    learned: Learned
    width: int
    left: float = 0.0
    coarse: bool = False
    by_batch: tuple[Learned, ...] = ()
    kept: tuple[Tensor, ...] = ()


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

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload, in order; rows that are noise in any field are left out."""
        number = {True: -1, False: -1}
        added = Totals()
        for batch in self.messages.of(payload):
            if payload is not self.payload:
                yield batch
                continue
            direction = upwards(batch)
            number[direction] += 1
            rows, keep = {}, None
            for name in float_fields(batch):
                found = self.maps.get((direction, name))
                held = entries(batch, name, self.features)
                if found is None or held.rows.shape[1] != found.width:
                    continue
                place = number[direction] % max(1, len(found.by_batch))
                map_ = found.by_batch[place] if found.by_batch else found.learned
                clean = map_.apply(held.rows)
                rows[name] = torch.where(clean.abs() <= _NOTHING * found.left, 0.0, clean)
                if found.kept and len(found.kept[number[direction] % len(found.kept)]) == len(held.rows):
                    keep = _entries_kept(found.kept[number[direction] % len(found.kept)], held.message, batch, keep)
            cleaned = with_rows(batch, rows, self.features)
            if self.totals:
                cleaned = added.followed(cleaned) if direction else added.made_again(cleaned)
            yield cleaned if keep is None else _some(cleaned, keep)


def _entries_kept(kept: Tensor, message: Tensor, batch: MessageBatch, before: Tensor | None) -> Tensor:
    """Return which entries of the payload's leading axis have all their rows."""
    count = next(iter(batch.payload.shapes().values()))[0]
    lost = torch.zeros(count, dtype=torch.bool)
    lost[message[~kept]] = True
    return ~lost if before is None else before & ~lost


def _some(batch: MessageBatch, keep: Tensor) -> MessageBatch:
    """Return the batch with some entries of its leading axis [entries]."""
    if batch.splits is None:
        return batch.select(keep)
    counts = torch.zeros(len(batch.senders), dtype=torch.long).index_add_(0, batch.entry_messages(), keep.long())
    splits = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    payload = batch.payload.select(keep.nonzero().squeeze(1))
    return MessageBatch(batch.round, batch.senders, batch.receivers, payload, splits)


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
        probes = Probes(view, graph, wire, pools)
        found |= {(direction, n): m for n, m in _public(probes, split(rng, "public"), device).items()}
        for name in float_fields(wire[0]):
            first_pair, again = (_joined(r, direction, name, features) for r in rehearsals)
            if (direction, name) in found and _holds(found[direction, name], again):
                continue
            if (made := _repeated(first_pair, again, device)) is not None:
                found[direction, name] = made
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
    kinds = ["normal", "uniform", "typical"]
    drawn = [probes.pairs(kind, rng) for kind in kinds]
    held = probes.pairs("typical", rng)
    names = float_fields(probes.wire[0])
    width = max(held[0][name][0].shape[1] for name in names)
    rows = sum(len(batch[names[0]][0]) for batch in held)
    while len(drawn) < _GRIDS and (len(drawn) - 2) * rows * width < _ENTRIES:
        drawn.append(probes.pairs("uniform", rng))
    mixed = max(len(batch[names[0]][0]) for batch in held)
    while len(drawn) < _PROBES and rows * (len(drawn) - 1) < 1.3 * width:
        drawn.append(probes.pairs("normal", rng))
    while len(drawn) < _MIXED and mixed <= MOST_MIXED and len(drawn) * width < mixed + 2:
        drawn.append(probes.pairs("normal", rng))
    found = {}
    for name in names:
        if any(batch[name][0].shape[1] != held[0][name][0].shape[1] for batch in held):
            continue
        if all(torch.equal(*batch[name]) for part in (*drawn, held) for batch in part):
            continue  # the defense leaves it alone
        if (made := _field(name, drawn, held, probes, rng, device)) is not None:
            found[name] = made
    return found


def _field(
    name: str,
    drawn: Sequence[Drawn],
    held: Drawn,
    probes: Probes,
    rng: torch.Generator,
    device: torch.device,
) -> FieldMap | None:
    together = [tuple(torch.cat([batch[name][i] for batch in part]) for i in (0, 1)) for part in (*drawn, held)]
    plain, sent = (torch.cat([pair[i] for pair in together[:-1]]) for i in (0, 1))
    most = max(_FEWEST_ROWS, _LEARNED_ROWS * plain.shape[1], 2 * _ENTRIES // plain.shape[1])
    order = torch.randperm(len(plain), generator=rng)[:most]
    last = torch.randperm(len(together[-1][0]), generator=rng)[: max(_FEWEST_ROWS, plain.shape[1] // 2)]
    some = [t[order].to(device) for t in (plain, sent)] + [t[last].to(device) for t in together[-1]]
    best = best_map(*some)
    if best.error <= GOOD:
        return _field_map(_on(best, device), together[-1][0])
    by_batch = []
    for number, batch in enumerate(probes.wire):
        pairs = [part[number][name] for part in drawn]
        senders = entries(batch, name, probes.view.public.num_features).senders
        by_batch.append(best_place_map(pairs, held[number][name], senders, best.error))
    if all(made is not None for made in by_batch) and max(m.error for m in by_batch if m) <= WORTH:
        maps = tuple(made for made in by_batch if made is not None)
        worst = max(maps, key=lambda made: made.error)
        return dataclasses.replace(_field_map(worst, together[-1][0]), by_batch=maps)
    kept = tuple(
        torch.stack([((s - p).abs().amax(1) <= _EXACT * (1 + p.abs().amax(1))) for p, s in parts]).all(0)
        for parts in zip(*([batch[name] for batch in part] for part in (*drawn, held)), strict=True)
    )
    if any(bool(k.any()) for k in kept):
        return FieldMap(Learned("rows sent as they are", 0.0, identity), together[-1][0].shape[1], kept=kept)
    return _field_map(_on(best, device), together[-1][0]) if best.error <= WORTH else None


def _field_map(learned: Learned, plain: Tensor) -> FieldMap:
    """Return the map with what it leaves of rows like ``plain`` [n, D]."""
    spread = float((plain - plain.mean(0)).square().mean().sqrt().item())
    return FieldMap(learned, plain.shape[1], learned.error**0.5 * spread, learned.error > _COARSE)


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


def _repeated(
    first: tuple[Tensor, Tensor] | None, again: tuple[Tensor, Tensor] | None, device: torch.device
) -> FieldMap | None:
    """Return the map learned from one rehearsal if it holds in another, in which the defense drew other secrets."""
    if first is None or again is None or first[0].shape[1] != again[0].shape[1]:
        return None
    best = best_map(*(t.to(device) for t in (*first, *again)))
    return _field_map(_on(best, device), again[0]) if best.error <= WORTH else None


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
    again = dict(learners(z, y)).get(best.name, best.apply)
    return _field_map(_on(Learned(best.name, best.error, again), device), z)


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
    pairs = known_pairs(view, payload, rng)
    learned: dict[Key, FieldMap] = {}
    for key in keys:
        if key not in pairs or torch.equal(*pairs[key]):
            continue
        if (made := _from_wire(*pairs[key], device)) is not None:
            learned[key] = made
    return learned | {key: made for key in keys if (made := _of_other_direction(key, learned, pairs)) is not None}


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
