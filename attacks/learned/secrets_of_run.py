"""Secrets that a defense draws in a run, learned from what went in and came out on the wire itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from fglaudit.attacks.learned.cleaned_messages import FieldMap, Key
from fglaudit.attacks.learned.entries import float_fields
from fglaudit.attacks.learned.field_maps import GOOD, WORTH, field_map, on_cpu
from fglaudit.attacks.learned.maps.row_map import relative_error
from fglaudit.attacks.learned.maps.row_maps import best_map, relearned
from fglaudit.attacks.learned.partly_known import (
    TURNED,
    confirmed,
    may_be_told,
    misfit,
    partly_known,
    signed_order,
    turned,
)
from fglaudit.attacks.learned.probes import ROUNDS, Seen, drawn_alike, known_draws, known_pairs
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import derive, split
from fglaudit.view import View

_SURE = 3
"""Pairs per column from which a map is known everywhere."""
_DRAWS = 8
"""Rehearsals with other rows in the places of those that are not known."""


def secrets_of_run(
    view: View,
    payload: type[Payload],
    wires: Mapping[bool, tuple[MessageBatch, ...]],
    found: Mapping[Key, FieldMap],
    changed: Collection[Key],
    rng: torch.Generator,
    device: torch.device,
) -> dict[Key, FieldMap]:
    """Return maps of the fields that the public code did not explain, learned from what went in and came out on the
    wire itself.

    Args:
        changed: fields that the defense changes; others only carry what was made of changed ones.
    """
    keys = [(d, n) for d, wire in wires.items() if wire for n in float_fields(wire[0]) if (d, n) not in found]
    knows_edges = view.topology is not None or bool(view.own)
    if not keys or not knows_edges or ("release" not in view.public.hooks and "prepare" not in view.public.hooks):
        return {}
    draws = known_draws(view, payload, 2, rng)
    if draws is None:
        return {}
    pairs = known_pairs(*draws)
    learned = {key: made for key in keys if key in pairs and (made := _from_wire(*pairs[key], device)) is not None}
    # More rounds have more pairs, but what follows from replies to hidden messages no rehearsal makes again.
    rough = [key for key in keys if key not in learned or learned[key].learned.error > GOOD]
    trains = any(batch.round > 0 for wire in wires.values() for batch in wire[:1])
    of_first = set()
    if rough and trains and (first := known_draws(view, payload, 2, split(rng, "first round"), 1)) is not None:
        alone = known_pairs(*first)
        for key in [key for key in rough if key in alone]:
            made = _from_wire(*alone[key], device)
            if made is not None and (key not in learned or made.learned.error < learned[key].learned.error):
                pairs[key], learned[key] = alone[key], made
                of_first.add(key)
    # Few pairs may all lie in the space of those that a map was learned from: others tell whether it holds outside.
    unsure = [
        k
        for k in keys
        if k not in learned or learned[k].learned.error > GOOD or len(pairs[k][0]) < _SURE * learned[k].width
    ]
    unsure = [key for key in unsure if key in changed and _may_be_told(draws, key)]
    for some, most in (([k for k in unsure if k not in of_first], ROUNDS), ([k for k in unsure if k in of_first], 1)):
        if not some or (more := known_draws(view, payload, _DRAWS, split(rng, "more"), most)) is None:
            continue
        for key in some:
            if (made := _from_parts(*more, key, learned.get(key), device)) is not None:
                learned[key] = made
    learned |= {key: made for key in keys if (made := _of_other_direction(key, learned, pairs)) is not None}
    return {key: _as_secret(made) for key, made in learned.items()}


def _may_be_told(draws: tuple[Seen, Sequence[Seen]], key: Key) -> bool:
    """Whether messages that follow in part from known rows may teach anything, as two draws show."""
    alike = drawn_alike(*draws, key)
    return alike is not None and may_be_told(*alike)


def _from_wire(plain: Tensor, sent: Tensor, device: torch.device) -> FieldMap | None:
    """Return the map learned from pairs on the wire, if they are enough to learn one; learned again with those that
    were held out."""
    cut = max(1, len(plain) // 5)
    if len(plain) < 2 * cut + 2 or torch.equal(plain, sent):
        return None
    order = torch.randperm(len(plain), generator=derive(0, "pairs on the wire"))
    z, y = plain[order].to(device), sent[order].to(device)
    best = best_map(z[cut:], y[cut:], z[:cut], y[:cut])
    if best.name == "nothing" or best.error > 0.5 * min(1.0, relative_error(z[:cut], y[:cut])):
        return None
    return field_map(on_cpu(relearned(best, z, y), device), z, y)


def _from_parts(
    seen: Seen, drawn: Sequence[Seen], key: Key, than: FieldMap | None, device: torch.device
) -> FieldMap | None:
    """Return the map learned from messages that follow in part from known rows, if it explains those better than
    ``than`` does."""
    alike = drawn_alike(seen, drawn, key)
    known = None if alike is None else partly_known(*(t.to(device) for t in alike))
    if known is None:
        return None
    made = signed_order(known)
    if made is None or not confirmed(known, made.apply):
        made = turned(known) or made
    if made is None or (
        than is not None
        and not confirmed(known, made.apply)
        and misfit(known, than.learned.apply) <= misfit(known, made.apply)
    ):
        return None
    return FieldMap(on_cpu(made, device), known.sent.shape[1])


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


def _as_secret(made: FieldMap) -> FieldMap:
    """Mark what more known rows may tell more of: all but a rotation that was confirmed."""
    return dataclasses.replace(made, of_run=made.learned.name != TURNED)
