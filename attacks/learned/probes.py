"""Pairs to learn from: what goes into the defense, and what comes out.

Two sources. The public defense is asked what it makes of made-up values in the places of the recorded messages
(:class:`Probes`): that shows all that its code does. What it draws in a run it draws anew for us; where that matters,
pairs come from the wire: messages that follow from rows which the observer knows, and what was sent for them
(:func:`known_pairs`), or messages that follow in part from such rows (:func:`drawn_alike`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges, own_clients
from fglaudit.adversary.planting import dealt, planted_federation, planted_rows
from fglaudit.attacks.learned.entries import entries, float_fields, upwards, with_rows
from fglaudit.errors import FglauditError
from fglaudit.graph import FeatureKind, FederatedGraph, first_of_each
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import copied, split
from fglaudit.view import Observer, View
from fglaudit.wire.rehearsal import DEFENSE_STREAM

_NODES = 3000
_FEW_NODES = 60
_LARGE = 10**5
"""Values in a message beyond which few nodes are made up."""
_MOST = 2**25
"""The same of all messages of a round."""
_SOME = 2**20
_DENSITY = 0.3
_SAME = 1e-6
_FEWEST_DISTINCT = 8
_HELD = 0.3
"""Share of distinct rows on which maps are tested."""
ROUNDS = 4
"""Of training whose messages are paired."""
_MIX = 6364136223846793005
"""Odd, so that codes of tuples, which overflow, are as good as distinct."""
CPU = torch.device("cpu")


def is_large(batches: Iterable[MessageBatch]) -> bool:
    """Return whether single messages of the first round, or all of them, are so large that few nodes are made up."""
    start, numbers = None, 0
    for batch in batches:
        start = batch.round if start is None else start
        numbers += batch.payload.numbers()
        if batch.round == start and (numbers > _MOST or batch.payload.numbers() > _LARGE * max(1, len(batch.senders))):
            return True
        if batch.round != start:
            break
    return False


def made_up_graph(view: View, large: bool, rng: torch.Generator) -> FederatedGraph:
    """Return a graph of the cell's schema with rows that were made up: dense ones, so that they span all columns."""
    n = view.public.num_nodes
    most = _FEW_NODES if large else _NODES
    others = (own_clients(view) < 0).nonzero().squeeze(1)[:most]
    edges = known_edges(view)
    edges = edges[:, edges[0] != edges[1]]
    if edges.shape[1] < n:
        edges = torch.randint(n, (2, 2 * n), generator=rng)
        edges = edges[:, edges[0] != edges[1]]
    x = torch.zeros(n, view.public.num_features)
    taking_part = torch.cat([others, *(client.nodes for client in view.own)])
    shape = (len(taking_part), view.public.num_features)
    if view.public.features is FeatureKind.REAL:
        x[taking_part] = torch.randn(shape, generator=rng)
    else:
        x[taking_part] = (torch.rand(shape, generator=rng) < _DENSITY).float()
        x[taking_part, torch.arange(len(taking_part)) % x.shape[1]] = 1.0  # no row is empty, no column a constant
        if view.public.features is FeatureKind.SCALED_BINARY:
            x = x / x.sum(1, keepdim=True).clamp(min=1)
    owner = dealt(view, others)
    inside = (owner[edges[0]] >= 0) & (owner[edges[1]] >= 0)
    return planted_federation(view, x, edges[:, inside], owner, rng)


@dataclass(frozen=True)
class Probes:
    """Made-up values in the places of recorded messages, and what the public defense makes of them.

    Attributes:
        view: of the observer.
        graph: that the defense is bound to.
        wire: the recorded messages, in order.
        pools: rows of entries [m, D] to draw from, by field.
        held: other rows, to test on what was learned: a table of rows it has seen is no map.
    """

    view: View
    graph: FederatedGraph
    wire: tuple[MessageBatch, ...]
    pools: Mapping[str, Tensor]
    held: Mapping[str, Tensor]

    def pairs(
        self, kind: str, rng: torch.Generator, start: float = 0.0, bind: torch.Generator | None = None
    ) -> list[dict[str, tuple[Tensor, Tensor]]]:
        """Return per message batch and field (plain, sent) [n, D], of one fresh bind of the defense.

        Args:
            kind: "typical": rows as honest messages have them; "held": others of those; "normal", "uniform": entries of
                their spread and range; "grid": their range in equal steps, in any order.
            start: of a grid, in steps.
            bind: for what the defense draws; split from ``rng`` by default.
        """
        release, features = self.view.public.release, self.view.public.num_features
        assert release is not None
        made = []
        for number, batch in enumerate(self.wire):
            place = (start + number / len(self.wire)) % 1
            rows = {
                name: self._values(entries(batch, name, features).rows.shape, name, kind, rng, place)
                for name in float_fields(batch)
            }
            made.append(with_rows(batch, rows, features))
        sent = release(self.graph, made, rng=bind or split(rng, "probe")).batches
        return [
            {n: (entries(before, n, features).rows, entries(after, n, features).rows) for n in float_fields(before)}
            for before, after in zip(made, sent, strict=True)
        ]

    def fewer(self) -> Probes:
        """Return probes in the places of the first messages alone."""
        return dataclasses.replace(self, wire=tuple(_first_messages(batch) for batch in self.wire))

    def fixed(self, names: Iterable[str], rng: torch.Generator) -> tuple[str, ...]:
        """Return the fields in which two fresh binds of the defense make the same of the same values: nothing in them
        is drawn anew."""
        twice = []
        same = split(rng, "the same values")
        few = self.fewer()
        for bind in range(2):
            twice.append(few.pairs("normal", copied(same), bind=split(rng, f"bind {bind}")))
        both = list(zip(*twice, strict=True))
        return tuple(n for n in names if all(torch.equal(*(t[n][1].nan_to_num() for t in pair)) for pair in both))

    def _values(self, shape: torch.Size, name: str, kind: str, rng: torch.Generator, start: float) -> Tensor:
        pool = self.held[name] if kind == "held" else self.pools[name]
        typical = kind in ("typical", "held")
        if typical and pool.shape[1] == shape[1]:
            return pool[torch.randint(len(pool), (shape[0],), generator=rng)]
        if typical:  # messages of another width
            return pool.reshape(-1)[torch.randint(pool.numel(), tuple(shape), generator=rng)]
        low, high = (
            pick(float(end(p).item()) for p in (pool, self.held[name]))
            for pick, end in ((min, torch.min), (max, torch.max))
        )
        margin = 0.05 * (high - low)
        if kind == "uniform":
            return low - margin + (high - low + 2 * margin) * torch.rand(shape, generator=rng, dtype=torch.double)
        if kind == "grid":
            count = shape.numel()
            steps = torch.randperm(count, generator=rng).double() + start
            return (low - margin + (high - low + 2 * margin) * steps / count).reshape(shape)
        spread = float(pool.std().item()) if pool.numel() > 1 else 1.0
        return float(pool.mean().item()) + spread * torch.randn(shape, generator=rng, dtype=torch.double)


def _first_messages(batch: MessageBatch) -> MessageBatch:
    """Return so many of the first messages as hold :data:`_SOME` numbers."""
    count = len(batch.senders)
    most = 1 + int(_SOME * count / max(1, batch.payload.numbers()))
    return batch if most >= count else batch.select(torch.arange(count) < most)


def apart(pool: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return rows [m, D] in two parts that have no row in common; twice all of them where they are too few."""
    code = pool @ torch.randn(pool.shape[1], dtype=pool.dtype, generator=rng)
    distinct, row = torch.unique(code, return_inverse=True)
    if len(distinct) < _FEWEST_DISTINCT:
        return pool, pool
    held = (torch.rand(len(distinct), generator=rng) < _HELD)[row]
    if not bool(held.any()) or bool(held.all()):
        return pool, pool
    return pool[~held], pool[held]


def rehearsed_pair(
    view: View, graph: FederatedGraph, payload: type[Payload], rounds: int, rng: torch.Generator
) -> list[tuple[MessageBatch, MessageBatch]]:
    """Return the messages of all parties on ``graph``, undefended and defended, drawn alike; nothing where the protocol
    refuses the graph."""
    rehearse = view.public.rehearse
    if rehearse is None:
        return []
    found = []
    same = split(rng, "rehearsed pair")
    for defended in (False, True):
        drawn = copied(same)
        if not defended:
            split(drawn, DEFENSE_STREAM)  # which a defended rehearsal draws first
        try:
            messages, _ = rehearse(
                graph, Observer(wire=True), [payload], rounds=rounds, rng=drawn, device=CPU, defended=defended
            )
        except FglauditError:
            return []
        found.append(list(messages.of(payload)))
    return list(zip(*found, strict=False))


Seen = dict[tuple[bool, str], tuple[Tensor, Tensor]]
"""By direction (upwards) and field: a code of every row [n], each once, and the rows [n, D]."""


def known_draws(
    view: View, payload: type[Payload], count: int, rng: torch.Generator, most: int = ROUNDS
) -> tuple[Seen, list[Seen]] | None:
    """Return the messages of the first ``most`` rounds as they were sent, and as the protocol makes them on what the
    observer knows of the graph, under the models that the server sent: ``count`` times, with other rows each time where
    it knows none. None where the protocol refuses."""
    return known_messages(view, payload, made_up_rows(view, count, rng), rng, most)


def made_up_rows(view: View, count: int, rng: torch.Generator) -> Iterator[Tensor]:
    """Yield rows for all nodes [N, F], drawn from the prior."""
    made_up = dataclasses.replace(view, own=())
    for _ in range(count):
        yield planted_rows(made_up, torch.arange(view.public.num_nodes), rng)


def known_messages(
    view: View, payload: type[Payload], rows: Iterable[Tensor], rng: torch.Generator, most: int = ROUNDS
) -> tuple[Seen, list[Seen]] | None:
    """Return what :func:`known_draws` does, with the given ``rows`` [N, F] in the places of those that the observer
    lacks."""
    if view.public.rehearse is None:
        return None
    known = view.known_rows()
    drawn = []
    start = next((batch.round for batch in view.messages.of(payload)), 0)
    rounds = start + most - 1 if start else 0
    models = [batch for batch in view.messages.of(ModelUpdate) if batch.round <= rounds]
    owner = _owners(view, payload)
    edges = _edges(view, owner)
    for others in rows:
        x = torch.zeros(view.public.num_nodes, view.public.num_features)
        x[:] = others
        x[known.nodes] = known.x
        graph = planted_federation(view, x, edges, owner, rng)
        try:
            messages, _ = view.public.rehearse(
                graph, view.observer, [payload], rounds=rounds, received=models, rng=split(rng, "known"), device=CPU
            )
        except FglauditError:
            return None
        drawn.append(keyed(list(messages.of(payload)), view.public.num_features, rounds))
    return keyed(list(view.messages.of(payload)), view.public.num_features, rounds), drawn


def drawn_alike(seen: Seen, drawn: Sequence[Seen], key: tuple[bool, str]) -> tuple[Tensor, Tensor] | None:
    """Return what the protocol makes of the messages that all draws have [draws, n, D], and what was sent [n, D]."""
    if key not in seen or any(key not in d for d in drawn):
        return None
    shared = _common(seen[key][0], *(d[key][0] for d in drawn))
    made = [d[key][1][place] for d, place in zip(drawn, shared[1:], strict=True)]
    sent = seen[key][1][shared[0]]
    if len(sent) == 0 or any(m.shape != sent.shape for m in made):
        return None
    return torch.stack(made), sent


def known_pairs(seen: Seen, drawn: Sequence[Seen]) -> dict[tuple[bool, str], tuple[Tensor, Tensor]]:
    """Return, by direction and field, the messages that follow from rows which the observer knows, as the protocol
    makes them and as they were sent: (plain, sent) [n, D].

    What comes out the same in all of ``drawn`` does not depend on what the observer lacks.
    """
    found = {}
    for key in seen:
        if (alike := drawn_alike(seen, drawn, key)) is None:
            continue
        made, sent = alike
        apart = (made - made[0]).abs().amax((0, 2))
        fixed = (apart <= _SAME * (1 + made[0].abs().amax(1))) & (made[0] != 0).any(1)
        found[key] = (made[0][fixed], sent[fixed])
    return found


def _common(*codes: Tensor) -> list[Tensor]:
    """Return, for lists of distinct codes, where each holds the codes that all have, in one order."""
    shared = codes[0]
    for other in codes[1:]:
        shared = shared[torch.isin(shared, other)]
    shared = shared.sort().values
    places = []
    for other in codes:
        order = other.argsort()
        places.append(order[torch.searchsorted(other[order], shared)])
    return places


def keyed(batches: Sequence[MessageBatch], features: int, rounds: int | None = None) -> Seen:
    """Return, by direction and field, codes of (round, sender, receiver, node, place) [n], each once, and rows of
    entries [n, D], of messages up to round ``rounds`` (None: all)."""
    parts: dict[tuple[bool, str], list[tuple[Tensor, Tensor]]] = {}
    for batch in batches:
        ids = batch.payload.ids()
        if rounds is not None and batch.round > rounds:
            continue
        message = batch.entry_messages()
        code = (torch.tensor(batch.round) * _MIX + batch.senders[message]) * _MIX + batch.receivers[message]
        code = code * _MIX + (0 if ids is None else ids)
        for name in float_fields(batch):
            held = entries(batch, name, features)
            listed = parts.setdefault((upwards(batch), name), [])
            each = len(held.rows) // max(1, len(code))
            if any(r.shape[1] != held.rows.shape[1] for _, r in listed[:1]):
                continue
            place = torch.arange(len(held.rows)) % max(1, each)
            listed.append((code[held.message] * _MIX + place, held.rows))
    found = {}
    for key, listed in parts.items():
        if not listed:
            continue
        codes, rows = torch.cat([c for c, _ in listed]), torch.cat([r for _, r in listed])
        unique, _, first = first_of_each(codes)
        found[key] = (unique, rows[first])
    return found


def _owners(view: View, payload: type[Payload]) -> Tensor:
    """Return the client of every node [N] as far as messages about nodes show it: that alone which is sent a node's
    total; strangers in turn for the rest."""
    n, k = view.public.num_nodes, view.public.num_clients
    owner = dealt(view, (own_clients(view) < 0).nonzero().squeeze(1))
    if n == k:
        return torch.arange(n)
    given = torch.zeros(n, k, dtype=torch.bool)
    for batch in view.messages.of(payload):
        ids = getattr(batch.payload, "nodes", None)
        if ids is None or bool((batch.senders != SERVER).any()):
            continue
        given[ids, batch.receivers[batch.entry_messages()]] = True
    sure = given.sum(1) == 1
    owner[sure] = given[sure].long().argmax(1)
    for client in view.own:
        owner[client.nodes] = client.client
    return owner


def _edges(view: View, owner: Tensor) -> Tensor:
    """Return the edges that the observer knows; where it knows degrees but not all neighbours, its own neighbours get
    others in their place, so that weights come out right."""
    edges = known_edges(view)
    edges = edges[:, edges[0] < edges[1]]
    if view.topology is not None:
        return edges
    n = view.public.num_nodes
    degree = torch.bincount(edges.reshape(-1), minlength=n)
    mine = own_clients(view) >= 0
    remote = torch.zeros(n, dtype=torch.bool)
    more = []
    for client in view.own:
        remote[client.remote_nodes] = True
    spare = (~mine & ~remote & (owner >= 0)).nonzero().squeeze(1)
    for client in view.own:
        if client.remote_degrees is None or len(spare) == 0:
            continue
        lack = (client.remote_degrees - degree[client.remote_nodes]).clamp(min=0, max=len(spare))
        degree[client.remote_nodes] += lack
        nodes = client.remote_nodes.repeat_interleave(lack)
        start = torch.repeat_interleave(lack.cumsum(0) - lack, lack)
        more.append(torch.stack([nodes, spare[torch.arange(len(nodes)) - start]]))
    return torch.cat([edges, *more], dim=1)
