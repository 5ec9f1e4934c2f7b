"""Messages as they were before a defense changed them, as far as that can be learned from pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.learned.entries import entries, float_fields, upwards, with_rows
from fglaudit.attacks.learned.place_maps import best_place_map
from fglaudit.attacks.learned.probes import Probes, known_pairs, made_up_graph, rehearsed_pair
from fglaudit.attacks.learned.row_maps import Learned, best_map, identity, relative_error
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import split
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
_VALUES = 2**25
_EXACT = 1e-9
_LARGE = 10**5
Key = tuple[bool, str]


@dataclass(frozen=True)
class FieldMap:
    """How one field is cleaned.

    Attributes:
        learned: the map of every row; by batch where it depends on the place.
        by_batch: maps of the first batches, in order, if it does.
        kept: by batch which rows [n] are kept: the others are noise.
    """

    learned: Learned
    by_batch: tuple[Learned, ...] = ()
    kept: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class CleanedMessages:
    """The messages of an observer with some fields of one payload cleaned."""

    messages: Messages
    payload: type[Payload]
    maps: Mapping[Key, FieldMap]
    features: int

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload, in order; rows that are noise in any field are left out."""
        number = {True: -1, False: -1}
        for batch in self.messages.of(payload):
            if payload is not self.payload:
                yield batch
                continue
            direction = upwards(batch)
            number[direction] += 1
            rows, keep = {}, None
            for name in float_fields(batch):
                found = self.maps.get((direction, name))
                if found is None:
                    continue
                held = entries(batch, name, self.features)
                place = number[direction] % max(1, len(found.by_batch))
                map_ = found.by_batch[place] if found.by_batch else found.learned
                rows[name] = map_.apply(held.rows)
                if found.kept and len(found.kept[number[direction] % len(found.kept)]) == len(held.rows):
                    keep = _entries_kept(found.kept[number[direction] % len(found.kept)], held.message, batch, keep)
            cleaned = with_rows(batch, rows, self.features)
            yield cleaned if keep is None else _some(cleaned, keep)


def _entries_kept(kept: Tensor, message: Tensor, batch: MessageBatch, before: Tensor | None) -> Tensor:
    """Return which entries of the payload's leading axis have all their rows."""
    count = len(next(iter(batch.payload.tensors().values())))
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
        values += sum(v.numel() for v in batch.payload.tensors().values())
        if found and values > _VALUES:
            break
        found.append(_fewer(batch) if values > _VALUES else batch)
        if len(found) == _BATCHES:
            break
    return tuple(found)


def _fewer(batch: MessageBatch) -> MessageBatch:
    """Return the first messages of a very large batch."""
    per_message = sum(v.numel() for v in batch.payload.tensors().values()) / len(batch.senders)
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
    large = sum(v.numel() for v in first.payload.tensors().values()) / len(first.senders) > _LARGE
    graph = made_up_graph(view, large, split(rng, "graph"))
    plain, sent = rehearsed_pair(view, graph, payload, min(1, first.round), split(rng, "rehearse"))
    for direction, wire in wires.items():
        if not wire:
            continue
        pools = {name: _pool(plain, wire, direction, name, view.public.num_features) for name in float_fields(wire[0])}
        probes = Probes(view, graph, wire, pools)
        found |= {(direction, n): m for n, m in _public(probes, split(rng, "public"), device).items()}
        rehearsed = [
            (b, a) for b, a in zip(plain, sent, strict=False) if upwards(b) is direction and b.round <= wire[0].round
        ]
        for name in float_fields(wire[0]):
            if (direction, name) not in found and (pair := _rehearsed(rehearsed, name, view.public.num_features)):
                found |= _from_pairs((direction, name), *pair, device)
    return found | _secret(view, payload, wires, found, split(rng, "known"), device)


def _pool(
    plain: list[MessageBatch], wire: tuple[MessageBatch, ...], direction: bool, name: str, features: int
) -> Tensor:
    """Return rows as honest messages have them; where none were rehearsed, those that were sent."""
    width = entries(wire[0], name, features).rows.shape[1]
    held = [entries(b, name, features).rows for b in plain if upwards(b) is direction and name in b.payload.tensors()]
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
    while len(drawn) < _PROBES and width > 1 and rows * (len(drawn) - 1) < 1.3 * width:
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
    name: str, drawn: list, held: list, probes: Probes, rng: torch.Generator, device: torch.device
) -> FieldMap | None:
    together = [tuple(torch.cat([batch[name][i] for batch in part]) for i in (0, 1)) for part in (*drawn, held)]
    plain, sent = (torch.cat([pair[i] for pair in together[:-1]]) for i in (0, 1))
    order = torch.randperm(len(plain), generator=rng)[: max(_FEWEST_ROWS, _LEARNED_ROWS * plain.shape[1])]
    last = torch.randperm(len(together[-1][0]), generator=rng)[: max(_FEWEST_ROWS, plain.shape[1] // 2)]
    some = [t[order].to(device) for t in (plain, sent)] + [t[last].to(device) for t in together[-1]]
    best = best_map(*some)
    if best.error <= GOOD:
        return FieldMap(_on(best, device))
    by_batch = []
    for number, batch in enumerate(probes.wire):
        pairs = [part[number][name] for part in drawn]
        senders = entries(batch, name, probes.view.public.num_features).senders
        by_batch.append(best_place_map(pairs, held[number][name], senders, best.error))
    if all(made is not None for made in by_batch) and max(m.error for m in by_batch if m) <= WORTH:
        return FieldMap(best, tuple(made for made in by_batch if made is not None))
    kept = tuple(
        torch.stack([((s - p).abs().amax(1) <= _EXACT * (1 + p.abs().amax(1))) for p, s in parts]).all(0)
        for parts in zip(*([batch[name] for batch in part] for part in (*drawn, held)), strict=True)
    )
    if any(bool(k.any()) for k in kept):
        return FieldMap(Learned("rows sent as they are", 0.0, identity), (), kept)
    return FieldMap(_on(best, device)) if best.error <= WORTH else None


def _on(learned: Learned, device: torch.device) -> Learned:
    """Return a map that takes and gives tensors on the CPU."""
    if device.type == "cpu":
        return learned
    return Learned(learned.name, learned.error, lambda rows: learned.apply(rows.to(device)).cpu())


def _rehearsed(
    pairs: list[tuple[MessageBatch, MessageBatch]], name: str, features: int
) -> tuple[Tensor, Tensor] | None:
    held = [tuple(entries(b, name, features).rows for b in pair) for pair in pairs]
    same = [h for h in held if h[0].shape == h[1].shape]
    if not same or all(torch.equal(*h) for h in same):
        return None
    return torch.cat([h[0] for h in same]), torch.cat([h[1] for h in same])


def _from_pairs(key: Key, plain: Tensor, sent: Tensor, device: torch.device) -> dict[Key, FieldMap]:
    """Return the map learned from pairs, if they are enough to learn one."""
    cut = max(1, len(plain) // 5)
    if len(plain) < 2 * cut + 2:
        return {}
    order = torch.randperm(len(plain), generator=torch.Generator().manual_seed(0))
    z, y = plain[order].to(device), sent[order].to(device)
    best = best_map(z[cut:], y[cut:], z[:cut], y[:cut])
    if best.name == "nothing" or best.error > 0.5 * min(1.0, relative_error(z[:cut], y[:cut])):
        return {}
    everything = best_map(z, y, z[:cut], y[:cut])  # learned again with the pairs that were held out
    return {key: FieldMap(_on(Learned(best.name, best.error, everything.apply), device))}


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
    if not keys or not knows_edges or "release" not in view.public.hooks and "prepare" not in view.public.hooks:
        return {}
    pairs = known_pairs(view, payload, rng)
    learned: dict[Key, FieldMap] = {}
    for key in keys:
        if key in pairs and not torch.equal(*pairs[key]):
            learned |= _from_pairs(key, *pairs[key], device)
    other = {k: m for k, m in learned.items() if (not k[0], k[1]) in keys and (not k[0], k[1]) not in learned}
    return learned | {(not k[0], k[1]): m for k, m in other.items()}  # what one direction taught may serve the other
