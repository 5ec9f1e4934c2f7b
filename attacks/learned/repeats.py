"""What is sent more than once: the combination of the repeats that says most of what was sent.

Noise that is drawn anew for every message averages out over repeats, masks cancel in differences or sums of two
messages, and shares add up. All of these are linear: ``z = sum over t of w_t y_t + b`` for the T messages that a sender
sends of one value. The weights are learned from made-up values, sent as often as the recorded ones, through a fresh
bind of the public defense; no size of any noise needs to be stated.

That messages repeat a value is seen in a rehearsal without the defense.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.learned.entries import entries, float_fields, upwards, with_rows
from fglaudit.attacks.learned.probes import CPU, is_large, made_up_graph
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import derive, split
from fglaudit.view import Messages, View

_MOST = 2**24
"""Numbers in messages that are combined."""
_MOST_REPEATS = 256
_SAME = 1e-5
_NEARLY_ALL = 0.99
_BETTER = 0.8
"""Share of the error of the best single message that the combination must stay below."""
_RIDGE = 1e-9
_LEAST_SLOPE = 1e-2
"""Share of a value that messages must tell."""
_MIX = 6364136223846793005
"""Odd, so that codes of tuples, which overflow, are as good as distinct."""
Key = tuple[bool, str]
"""Whether clients sent it, and the field."""


@dataclass(frozen=True)
class _Rows:
    """The rows of one field in one direction, of all batches in order.

    Attributes:
        values: [M, D].
        value_of: which value each row carries [M], by number.
        turn: how often that value was sent before [M].
        times: how often it is sent [M].
    """

    values: Tensor
    value_of: Tensor
    turn: Tensor
    times: Tensor

    def stacked(self, times: int) -> Tensor:
        """Return the rows of the values that are sent ``times`` times [values, times, D]."""
        here = self.times == times
        order = (self.value_of[here] * (times + 1) + self.turn[here]).argsort()
        return self.values[here][order].reshape(-1, times, self.values.shape[1])


@dataclass(frozen=True)
class Combined:
    """Messages whose repeats were combined.

    Attributes:
        view: with every message replaced by what its repeats say together.
        left: root mean square of what that leaves, by payload and field.
    """

    view: View
    left: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class _Replaced:
    messages: Messages
    payload: type[Payload]
    batches: tuple[MessageBatch, ...]

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload, in order."""
        return iter(self.batches) if payload is self.payload else self.messages.of(payload)


def has_repeats(view: View, payload: type[Payload]) -> bool:
    """Whether messages of ``payload`` in several rounds carry the same values, as a rehearsal shows."""
    batches = _few(view, payload)
    rounds = sorted({batch.round for batch in batches})
    return len(rounds) > 1 and bool(_repeating(view, payload, batches, derive(0, "repeats")))


def combined(view: View, payload: type[Payload], rng: torch.Generator) -> Combined | None:
    """Return ``view`` with repeats of ``payload`` combined; None where nothing repeats, or no combination says more
    than a message alone."""
    batches = _few(view, payload)
    keys = _repeating(view, payload, batches, rng) if len(batches) > 1 else set()
    release = view.public.release
    if not keys or release is None:
        return None
    features = view.public.num_features
    graph = made_up_graph(view, is_large(batches), split(rng, "graph"))
    known = {key: rows for key in sorted(keys) if (rows := _rows(batches, key, features)) is not None}
    plain, sent = zip(*(_probe(view, graph, batches, known, split(rng, f"probe {i}")) for i in range(2)), strict=True)
    made, left = {}, {}
    for key, rows in known.items():
        if any(probe.get(key) is None for probe in sent):
            continue
        taught, held = ((plain[i][key], dataclasses.replace(rows, values=sent[i][key])) for i in (0, 1))
        if (done := _by_times(rows, taught, held)) is not None:
            made[key], left[payload.__name__, key[1]] = done
    if not made:
        return None
    messages = _Replaced(view.messages, payload, tuple(_said_once(_with(batches, made, features), known, features)))
    return Combined(dataclasses.replace(view, messages=messages), left)


def _few(view: View, payload: type[Payload]) -> list[MessageBatch]:
    """Return the first messages, as many as can be combined."""
    found: list[MessageBatch] = []
    numbers = 0
    for batch in view.messages.of(payload):
        numbers += batch.payload.numbers()
        if found and numbers > _MOST:
            break
        found.append(batch)
    return found


def _rows(batches: Sequence[MessageBatch], key: Key, features: int) -> _Rows | None:
    """Return the rows of one field; None where they are not all as wide."""
    codes, values = [], []
    for batch in batches:
        if upwards(batch) is not key[0] or key[1] not in float_fields(batch) or len(batch.senders) == 0:
            continue
        held, ids = entries(batch, key[1], features), batch.payload.ids()
        about = batch.senders[batch.entry_messages()] * _MIX + (0 if ids is None else ids)
        place = torch.arange(len(held.rows)) % max(1, len(held.rows) // max(1, len(about)))
        codes.append(about[held.message] * _MIX + place)
        values.append(held.rows)
    if not values or any(v.shape[1] != values[0].shape[1] for v in values):
        return None
    code = torch.cat(codes)
    _, number, count = torch.unique(code, return_inverse=True, return_counts=True)
    order = number.argsort(stable=True)
    start = count.cumsum(0) - count
    turn = torch.empty_like(number)
    turn[order] = torch.arange(len(number)) - start[number[order]]
    return _Rows(torch.cat(values), number, turn, count[number])


def _repeating(view: View, payload: type[Payload], batches: Sequence[MessageBatch], rng: torch.Generator) -> set[Key]:
    """Return the fields in which the protocol, undefended, sends the same values again."""
    rehearse = view.public.rehearse
    rounds = sorted({batch.round for batch in batches})
    if rehearse is None or not rounds:
        return set()
    features = view.public.num_features
    keys = {(upwards(batch), name) for batch in batches if len(batch.senders) for name in float_fields(batch)}
    on_wire = {key: _rows(batches, key, features) for key in keys}
    keys = {key for key, rows in on_wire.items() if rows is not None and bool((rows.times > 1).any())}
    if not keys:
        return set()
    graph = made_up_graph(view, is_large(batches), split(rng, "graph of repeats"))
    try:
        messages, _ = rehearse(
            graph, view.observer, [payload], rounds=rounds[min(1, len(rounds) - 1)], rng=rng, device=CPU
        )
    except FglauditError:
        return set()
    seen = [batch for batch in messages.of(payload) if len(batch.senders)]
    return {key for key in keys if (rows := _rows(seen, key, features)) is not None and _are_alike(rows)}


def _are_alike(rows: _Rows) -> bool:
    """Whether what is sent again is the same, and no constant."""
    again = rows.turn > 0
    if not bool(again.any()):
        return False
    first = torch.zeros(int(rows.value_of.max().item()) + 1, rows.values.shape[1], dtype=rows.values.dtype)
    first[rows.value_of[~again]] = rows.values[~again]
    off = (rows.values - first[rows.value_of])[again].abs().amax(1)
    same = off <= _SAME * (1 + rows.values[again].abs().amax(1))
    return float(same.double().mean().item()) >= _NEARLY_ALL and float(rows.values.std().item()) > 0


def _probe(
    view: View,
    graph: FederatedGraph,
    batches: Sequence[MessageBatch],
    wire: Mapping[Key, _Rows],
    rng: torch.Generator,
) -> tuple[dict[Key, Tensor], dict[Key, Tensor]]:
    """Return made-up rows [M, D], the same in all repeats, and what a fresh bind of the defense makes of them."""
    features = view.public.num_features
    plain = {}
    for key, rows in wire.items():
        values = rows.values.nan_to_num(0.0, 0.0, 0.0)
        shape = (int(rows.value_of.max().item()) + 1, values.shape[1])
        drawn = torch.randn(shape, generator=rng, dtype=torch.double)
        plain[key] = (values.mean() + values.std() * drawn)[rows.value_of]
    made = _with(batches, plain, features)
    release = view.public.release
    assert release is not None
    try:
        after = release(graph, made, rng=split(rng, "bind")).batches
    except FglauditError:
        return plain, {}
    found = {key: _rows(after, key, features) for key in plain}
    return plain, {k: r.values for k, r in found.items() if r is not None and r.values.shape == plain[k].shape}


def _with(batches: Sequence[MessageBatch], rows: Mapping[Key, Tensor], features: int) -> list[MessageBatch]:
    """Return the batches with the rows [M, D] of some fields replaced, in order."""
    place = dict.fromkeys(rows, 0)
    made = []
    for batch in batches:
        changed = {}
        for name in float_fields(batch):
            key = (upwards(batch), name)
            if key not in rows or len(batch.senders) == 0:
                continue
            count = len(entries(batch, name, features).rows)
            changed[name] = rows[key][place[key] : place[key] + count]
            place[key] += count
        made.append(with_rows(batch, changed, features))
    return made


def _said_once(batches: Sequence[MessageBatch], wire: Mapping[Key, _Rows], features: int) -> Iterator[MessageBatch]:
    """Yield the batches that say anything for the first time."""
    place = dict.fromkeys(wire, 0)
    for batch in batches:
        new = []
        for name in float_fields(batch):
            key = (upwards(batch), name)
            if key not in wire or len(batch.senders) == 0:
                continue
            count = len(entries(batch, name, features).rows)
            new.append(bool((wire[key].turn[place[key] : place[key] + count] == 0).any()))
            place[key] += count
        if any(new) or not new:
            yield batch


def _by_times(rows: _Rows, taught: tuple[Tensor, _Rows], held: tuple[Tensor, _Rows]) -> tuple[Tensor, float] | None:
    """Return what repeats say together in the place of every row [M, D], and the root mean square of what that leaves;
    None where it leaves as much as a single message does."""
    after = rows.values.clone()
    left, alone, examples = 0.0, 0.0, 0
    for times in torch.unique(rows.times).tolist():
        if not 1 < times <= _MOST_REPEATS:
            continue
        weights = _unbiased(*_design(*taught, times))
        design, target = _design(*held, times)
        left += float((design @ weights - target).square().sum().item())
        alone += min(
            float((design[:, [t, -1]] @ _unbiased(design[:, [t, -1]], target) - target).square().sum().item())
            for t in range(times)
        )
        examples += len(target)
        here = rows.times == times
        stacked = rows.stacked(times)
        said = torch.einsum("vtd,t->vd", stacked, weights[:-1]) + weights[-1]
        _, number = torch.unique(rows.value_of[here], return_inverse=True)
        after[here] = said[number]
    if examples == 0 or not left < _BETTER**2 * alone:
        return None
    return after, (left / examples) ** 0.5


def _design(plain: Tensor, rows: _Rows, times: int) -> tuple[Tensor, Tensor]:
    """Return the repeats of every entry with a constant [n, times + 1], and the entries [n]."""
    stacked = rows.stacked(times).movedim(1, 2).reshape(-1, times)
    target = dataclasses.replace(rows, values=plain).stacked(times)[:, 0].reshape(-1)
    return torch.cat([stacked, torch.ones_like(stacked[:, :1])], dim=1), target


def _unbiased(design: Tensor, target: Tensor) -> Tensor:
    """Return the weights with the least error, with the shrinking undone that noise brings: made-up values have another
    spread than those that were sent."""
    weights = _weights(design, target)
    said, shift = design @ weights, target - target.mean()
    slope = (said * shift).sum() / shift.square().sum().clamp(min=1e-300)
    if not float(slope.item()) > _LEAST_SLOPE:
        return weights
    weights = weights / slope
    weights[-1] = target.mean() - (design[:, :-1] @ weights[:-1]).mean()
    return weights


def _weights(design: Tensor, target: Tensor) -> Tensor:
    gram = design.T @ design
    ridge = _RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    weights: Tensor = torch.linalg.solve(gram + ridge, design.T @ target)
    return weights
