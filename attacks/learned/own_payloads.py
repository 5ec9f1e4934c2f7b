"""Rows from payloads of a plugin's own, of which nothing is known here but the code that sends them.

The protocol is public: it is rehearsed on graphs of the attacker's own, where every message about a node stands beside
the row of that node. A map from messages to rows that such pairs teach is taken if it holds on another graph, of which
the protocol drew other secrets. What it draws in a run is learned from the messages about rows that are known.

A message belongs to the node whose id it carries (the payload's first field of whole numbers), or to its sender where
every node is a client of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.learned.delegation import Candidate
from fglaudit.attacks.learned.entries import entries, float_fields
from fglaudit.attacks.learned.field_maps import on_cpu
from fglaudit.attacks.learned.hidden_rows import in_levels
from fglaudit.attacks.learned.maps.row_map import Learned
from fglaudit.attacks.learned.maps.row_maps import best_map, relearned
from fglaudit.attacks.learned.probes import CPU, made_up_graph
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, positions
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive, split
from fglaudit.view import Auxiliary, View

BUILT_IN = "fglaudit.payloads"
_WORTH = 0.3
"""Relative error above which nothing was learned."""
_NEAR = 0.05
"""Relative error below which entries are as good as their levels."""
_FEWEST = 8
_PER_COLUMN = 4
_MOST_WIDTH = 4096


def own_types() -> tuple[type[Payload], ...]:
    """Return the payload types that do not come with this project, by name."""
    named = sorted(Payload.registry.items())
    return tuple(payload for _, payload in named if not f"{payload.__module__}.".startswith(f"{BUILT_IN}."))


def names_nodes(view: View, payload: type[Payload]) -> bool:
    """Whether messages of type ``payload`` say which nodes they are about, and hold numbers."""
    seen = view.messages.of(payload)
    return any(_belongs(batch, view) and bool(float_fields(batch)) for batch in seen)


def _belongs(batch: MessageBatch, view: View) -> bool:
    """Whether messages carry ids of nodes, or their senders are nodes."""
    per_node = view.public.num_clients == view.public.num_nodes
    return batch.payload.ids() is not None or (per_node and bool((batch.senders != SERVER).all()))


@dataclass(frozen=True)
class _OfNodes:
    """Messages about nodes: one row of entries each.

    Attributes:
        nodes: [n].
        sent: [n, D].
    """

    nodes: Tensor
    sent: Tensor


def own_rows(
    view: View, payload: type[Payload], rng: torch.Generator, device: torch.device, *, defended: bool = False
) -> Iterator[Candidate]:
    """Yield rows from messages of type ``payload``: by a map that rehearsals taught, and by one that known rows did.

    Args:
        defended: whether messages are as a defense left them, so that rehearsals send them through a fresh bind of it.
    """
    for name, seen in _by_field(list(view.messages.of(payload)), view).items():
        taught = _rehearsed_map(view, payload, name, seen.sent.shape[1], split(rng, name), device, defended)
        if taught is not None:

            def again(known: Auxiliary, seen: _OfNodes = seen, taught: Learned = taught) -> Reconstruction:
                return _decoded(view, known, seen, taught)

            yield Candidate(again(view.auxiliary), again)

        def from_known(known: Auxiliary, seen: _OfNodes = seen) -> Reconstruction | None:
            map_ = _map_of_run(view, known, seen, device)
            return None if map_ is None else _decoded(view, known, seen, map_)

        if (found := from_known(view.auxiliary)) is not None:
            yield Candidate(found, from_known)


def _by_field(batches: Sequence[MessageBatch], view: View) -> dict[str, _OfNodes]:
    """Return the messages about nodes by field; all fields side by side under the name "" where there are several."""
    parts: dict[str, list[_OfNodes]] = {}
    for batch in batches:
        ids = batch.payload.ids()
        if not _belongs(batch, view):
            continue
        owners = batch.senders if ids is None else ids
        names = float_fields(batch)
        whole = [batch.payload.tensors()[name].double().reshape(len(owners), -1) for name in names]
        for name in names:
            held = entries(batch, name, view.public.num_features)
            parts.setdefault(name, []).append(_OfNodes(owners[held.message], held.rows))
        if len(owners) and (len(names) > 1 or any(len(p[-1].sent) != len(owners) for p in parts.values())):
            parts.setdefault("", []).append(_OfNodes(owners, torch.cat(whole, dim=1)))
    found = {}
    for name, listed in parts.items():
        width = listed[0].sent.shape[1]
        alike = [part for part in listed if part.sent.shape[1] == width and len(part.nodes)]
        if alike and 0 < width <= _MOST_WIDTH:
            found[name] = _OfNodes(torch.cat([p.nodes for p in alike]), torch.cat([p.sent for p in alike]))
    return found


def _rehearsed_map(
    view: View,
    payload: type[Payload],
    name: str,
    width: int,
    rng: torch.Generator,
    device: torch.device,
    defended: bool,
) -> Learned | None:
    """Return the map from messages to rows that holds on a rehearsal which it was not learned from."""
    pairs: list[tuple[Tensor, Tensor]] = []
    needed = _PER_COLUMN * max(width, view.public.num_features)
    while len(pairs) < 2 or (sum(len(z) for z, _ in pairs[1:]) < needed and len(pairs) < 1 + _PER_COLUMN):
        number = len(pairs)
        graph = made_up_graph(view, False, split(rng, f"graph {number}"))
        found = _rehearsed(view, graph, payload, name, split(rng, f"rehearsal {number}"), defended)
        if found is None or found[1].shape[1] != width:
            return None
        pairs.append(found)
    held, taught = pairs[0], tuple(torch.cat([pair[i] for pair in pairs[1:]]) for i in (0, 1))
    best = best_map(*(t.to(device) for t in (*taught, *held)))
    return on_cpu(best, device) if best.error <= _WORTH else None


def _rehearsed(
    view: View, graph: FederatedGraph, payload: type[Payload], name: str, rng: torch.Generator, defended: bool
) -> tuple[Tensor, Tensor] | None:
    """Return rows [n, F] of ``graph`` and what is sent about them [n, D]; None where the protocol refuses it."""
    rehearse = view.public.rehearse
    if rehearse is None:
        return None
    try:
        messages, _ = rehearse(
            graph, view.observer, [payload], rounds=_last(view, payload), rng=rng, device=CPU, defended=defended
        )
    except FglauditError:
        return None
    seen = _by_field(list(messages.of(payload)), view).get(name)
    if seen is None or len(seen.nodes) < _FEWEST or graph.x.dim() != 2:
        return None
    return graph.x[seen.nodes].double(), seen.sent


def _last(view: View, payload: type[Payload]) -> int:
    return max((batch.round for batch in view.messages.of(payload)), default=0)


def _map_of_run(view: View, known: Auxiliary, seen: _OfNodes, device: torch.device) -> Learned | None:
    """Return the map that the messages about known rows teach, where a fifth of those rows confirms it."""
    rows = _known(view, known)
    place = positions(rows.nodes, view.public.num_nodes)
    of_known = place[seen.nodes] >= 0
    nodes = seen.nodes[of_known]
    distinct, number = torch.unique(nodes, return_inverse=True)
    if len(distinct) < _FEWEST:
        return None
    z, y = rows.x[place[nodes]].double().to(device), seen.sent[of_known].to(device)
    order = torch.randperm(len(distinct), generator=derive(0, "known rows of a plugin's payload"))
    held = (order[number] < max(2, len(distinct) // 5)).to(device)
    best = best_map(z[~held], y[~held], z[held], y[held])
    if best.name == "nothing" or best.error > _WORTH:
        return None
    return on_cpu(relearned(best, z, y), device)


def _decoded(view: View, known: Auxiliary, seen: _OfNodes, map_: Learned) -> Reconstruction:
    """Return the rows of nodes that the observer does not know; the mean of what several messages say of one."""
    open_ = ~torch.isin(seen.nodes, _known(view, known).nodes)
    nodes, number = torch.unique(seen.nodes[open_], return_inverse=True)
    made = map_.apply(seen.sent[open_])
    rows = torch.zeros(len(nodes), made.shape[1], dtype=torch.double).index_add_(0, number, made)
    rows = rows / torch.bincount(number, minlength=len(nodes)).clamp(min=1)[:, None]
    if map_.error <= _NEAR:
        rows = in_levels(rows, view.public.features)
    confidence = torch.full((len(nodes),), max(0.0, 1.0 - map_.error))
    return Reconstruction(rows.float(), nodes, confidence, torch.zeros(len(nodes), dtype=torch.bool))


def _known(view: View, known: Auxiliary) -> Auxiliary:
    return View(view.observer, view.messages, view.own, known, view.public).known_rows()
