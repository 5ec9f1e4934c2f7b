"""What a public defense does to messages that no stated fact explains: where there is something to learn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from fglaudit.attacks.learned.cleaning import first_batches, first_messages
from fglaudit.attacks.learned.entries import entries, float_fields, with_rows
from fglaudit.attacks.learned.probes import made_up_graph
from fglaudit.errors import FglauditError
from fglaudit.facts import (
    K_ARY,
    MULTI_BIT,
    Additive,
    Correlated,
    Fact,
    Foreign,
    Masked,
    Memoised,
    Randomised,
    is_built_in,
    on,
)
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive, split
from fglaudit.view import Released, View

_VALUES = 2**21
_BINDS = 6
"""Fresh binds that are asked: a secret order of two columns is the order that they have in every second one."""


def unexplained(view: View, payloads: Iterable[type[Payload]]) -> bool:
    """Whether the public defense does something to rows or to ``payloads`` that no fact explains, or states facts of
    kinds that no attack here knows; seen on a graph and messages of the attacker's own."""
    if any(map(_unheard_of, view.public.facts)):
        return True
    assert view.public.release is not None
    rng = derive(0, "what is unexplained")
    graph = made_up_graph(view, True, rng)
    batches = [b for p in payloads for direction in (True, False) for b in first_batches(view, p, direction)[:1]]
    # Some of every kind: a fact about messages of which there are none here would seem to do nothing.
    few = [first_messages(batch, _VALUES) for batch in batches]
    made = [_made_up(batch, view.public.num_features, rng) for batch in few]
    binds: list[Released] = []
    try:
        for number in range(_BINDS):
            binds.append(view.public.release(graph, made, rng=split(rng, f"bind {number}")))
            if binds[-1].unstated:
                return True
    except FglauditError:
        return False
    return _drawn_alike(view.public.facts, made, *binds[:2])


def _unheard_of(fact: Fact) -> bool:
    """Whether attacks here do not know what a fact makes of values."""
    if isinstance(fact, Foreign | Masked | Memoised | Correlated) or not is_built_in(fact):
        return True
    return isinstance(fact, Randomised) and fact.kind not in (MULTI_BIT, K_ARY)


def _drawn_alike(facts: Sequence[Fact], made: Sequence[MessageBatch], one: Released, other: Released) -> bool:
    """Whether a field that is said to be random is the same in two binds of the defense, which draw apart, and not
    what entered."""
    for before, first, second in zip(made, one.batches, other.batches, strict=True):
        direction = "up" if bool((before.senders != SERVER).any()) else "down"
        for name, value in before.payload.tensors().items():
            about = on(facts, type(before.payload), name, direction)
            if not value.is_floating_point() or not any(isinstance(f, Additive | Randomised) for f in about):
                continue
            left = first.payload.tensors()[name]
            if torch.equal(left, second.payload.tensors()[name]) and not torch.equal(left, value):
                return True
    return False


def _made_up(batch: MessageBatch, features: int, rng: torch.Generator) -> MessageBatch:
    """Return ``batch`` with other values."""
    rows = {}
    for name in float_fields(batch):
        held = entries(batch, name, features).rows
        spread = float(held.std().item()) if held.numel() > 1 else 0.0
        rows[name] = (spread if 0 < spread < float("inf") else 1.0) * torch.randn(held.shape, generator=rng)
    return with_rows(batch, rows, features)
