"""How messages were before a defense changed them, as far as that can be learned from pairs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import sees_deliveries
from fglaudit.attacks.learned.cleaned_messages import FieldMap, Key
from fglaudit.attacks.learned.entries import entries, float_fields, upwards
from fglaudit.attacks.learned.field_maps import GOOD, WORTH, field_map, on_cpu
from fglaudit.attacks.learned.maps.row_map import Learned, identity, relative_error
from fglaudit.attacks.learned.maps.row_maps import TABLES, best_map
from fglaudit.attacks.learned.masks import unmasked
from fglaudit.attacks.learned.node_totals import Totals
from fglaudit.attacks.learned.place_maps import MOST_MIXED, best_place_map
from fglaudit.attacks.learned.probes import (
    Probes,
    apart,
    made_up_graph,
    rehearsed_pair,
)
from fglaudit.attacks.learned.secrets_of_run import secrets_of_run
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import split
from fglaudit.view import View

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
_VALUES = 2**24
_EXACT = 1e-9
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
        found.append(first_messages(batch, _VALUES) if values > _VALUES else batch)
        if len(found) == _BATCHES:
            break
    return tuple(found)


def first_messages(batch: MessageBatch, values: int) -> MessageBatch:
    """Return the first messages of ``batch`` with at most so many numbers, but one at least."""
    per_message = batch.payload.numbers() / len(batch.senders)
    most = max(1, int(values / per_message))
    return batch.select(torch.arange(len(batch.senders)) < most)


@dataclass(frozen=True)
class PublicMaps:
    """What the public code alone tells.

    Attributes:
        found: how fields are cleaned.
        changed: fields that the defense changes.
        probes: by direction.
    """

    found: Mapping[Key, FieldMap]
    changed: frozenset[Key]
    probes: Mapping[bool, Probes]


def public_maps(
    view: View, payload: type[Payload], rng: torch.Generator, device: torch.device, *, large: bool
) -> PublicMaps:
    """Return what the public code does to the fields of ``payload``, and how that is undone.

    Args:
        large: whether the protocol is rehearsed on few nodes, as some of what it sends is large.
    """
    found: dict[Key, FieldMap] = {}
    changed: set[Key] = set()
    asked: dict[bool, Probes] = {}
    wires = {direction: first_batches(view, payload, direction) for direction in (True, False)}
    first = next((wire[0] for wire in wires.values() if wire), None)
    if first is None:
        return PublicMaps({}, frozenset(), {})
    graphs = [made_up_graph(view, large, split(rng, f"graph {i}")) for i in range(2)]
    graph, until = graphs[0], min(1, first.round)
    rehearsals = [rehearsed_pair(view, made, payload, until, split(rng, "rehearsal")) for made in graphs]
    features = view.public.num_features
    for direction, wire in wires.items():
        if not wire:
            continue
        pools = {name: plausible_rows(rehearsals[0], wire, direction, name, features) for name in float_fields(wire[0])}
        parts = {name: apart(pool, split(rng, "held rows")) for name, pool in pools.items()}
        probes = Probes(view, graph, wire, {n: p for n, (p, _) in parts.items()}, {n: h for n, (_, h) in parts.items()})
        asked[direction] = probes
        drawn, held = _examples(probes, split(rng, "examples"))
        left = _changed(probes, drawn, held)
        changed |= {(direction, name) for name in left}
        maps = _public(probes, drawn, held, left, split(rng, "public"), device) if left else {}
        found |= {(direction, name): made for name, made in maps.items()}
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
    return PublicMaps(found, frozenset(changed), asked)


def learn_maps(
    view: View, payload: type[Payload], public: PublicMaps, rng: torch.Generator, device: torch.device
) -> dict[Key, FieldMap]:
    """Return how the fields of ``payload`` that the defense changed are cleaned; those of which nothing was learned
    are left out. Secrets of the run are learned from the rows that the observer of ``view`` knows."""
    found, changed = dict(public.found), public.changed
    wires = {direction: probes.wire for direction, probes in public.probes.items()}
    found |= secrets_of_run(view, payload, wires, found, changed, split(rng, "known"), device)
    for direction, probes in public.probes.items():
        for name in float_fields(probes.wire[0]):
            key = (direction, name)
            if key not in changed or (key in found and found[key].learned.error <= GOOD):
                continue
            shared = unmasked(
                dataclasses.replace(probes, view=view), payload, direction, name, split(rng, f"masks of {name}")
            )
            found |= {} if shared is None else {key: shared}
    return found


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


def plausible_rows(
    rehearsed: Sequence[BatchPair], wire: tuple[MessageBatch, ...], direction: bool, name: str, features: int
) -> Tensor:
    """Return rows, as wide as those of the first batch, that honest messages have; where none were rehearsed, those
    that were sent."""
    width = entries(wire[0], name, features).rows.shape[1]

    def as_wide(batches: Iterable[MessageBatch]) -> list[Tensor]:
        rows = [entries(batch, name, features).rows for batch in batches]
        return [r for r in rows if r.shape[1] == width and len(r)]

    return torch.cat(as_wide(b for b, _ in rehearsed if upwards(b) is direction) or as_wide(wire))


def _examples(probes: Probes, rng: torch.Generator) -> tuple[list[Drawn], Drawn]:
    """Return probes to learn from, and one to test on."""
    return [probes.pairs(kind, rng) for kind in ("normal", "uniform", "typical")], probes.pairs("held", rng)


def _changed(probes: Probes, drawn: Sequence[Drawn], held: Drawn) -> list[str]:
    """Return the fields that the defense does not leave alone."""
    names = [name for name in float_fields(probes.wire[0]) if _one_width(name, held)]
    return [n for n in names if not all(torch.equal(*batch[n]) for part in (*drawn, held) for batch in part)]


def _public(
    probes: Probes, drawn: list[Drawn], held: Drawn, left: list[str], rng: torch.Generator, device: torch.device
) -> dict[str, FieldMap]:
    """Return the maps that undo what the public code does to the fields ``left``, tried on another bind of the
    defense."""
    names = list(left)
    width = max(held[0][name][0].shape[1] for name in left)
    rows = max(1, sum(len(batch[left[0]][0]) for batch in held))
    while len(drawn) < _PROBES and rows * (len(drawn) - 1) < 1.3 * width:
        drawn.append(probes.pairs("normal", rng))
    found = {name: made for name in left if (made := _everywhere(name, drawn, held, rng, device)) is not None}
    left = [name for name in left if _is_rough(found.get(name))]
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


def _is_rough(made: FieldMap | None) -> bool:
    """Whether a rival is worth asking: nothing good was found, or a table that may not have seen all values."""
    return made is None or made.learned.error > GOOD or (made.learned.name in TABLES and made.coarse)


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
    return field_map(on_cpu(best, device), *(t[last] for t in together[-1])) if best.error <= WORTH else None


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
        return dataclasses.replace(field_map(worst, plain), by_batch=maps)
    kept = tuple(
        torch.stack([((s - p).abs().amax(1) <= _EXACT * (1 + p.abs().amax(1))) for p, s in parts]).all(0)
        for parts in zip(*([batch[name] for batch in part] for part in (*drawn, held)), strict=True)
    )
    if any(bool(k.any()) for k in kept):
        return FieldMap(Learned("rows sent as they are", 0.0, identity), plain.shape[1], kept=kept)
    return None


def _joined(pairs: Sequence[BatchPair], direction: bool, name: str, features: int) -> tuple[Tensor, Tensor] | None:
    """Return (plain, sent) [n, D] of the batches in one direction that have the most common width; None where there
    are none, or nothing changed."""
    held = [
        (entries(before, name, features).rows, entries(after, name, features).rows)
        for before, after in pairs
        if upwards(before) is direction and upwards(after) is direction
    ]
    same = [(one, two) for one, two in held if one.shape == two.shape]
    if not same or all(torch.equal(one, two) for one, two in same):
        return None
    rows = Counter[int]()
    for one, _ in same:  # matrices of neighbourhoods have several sizes: of one kind only those of one width are rows
        rows[one.shape[1]] += len(one)
    width = rows.most_common(1)[0][0]
    same = [pair for pair in same if pair[0].shape[1] == width]
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
    return field_map(on_cpu(best, device), *again) if best.error <= WORTH else None
