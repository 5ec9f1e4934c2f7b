"""Does a protocol list every node whose row reaches an observer? Who is not listed is no target: of its row reports say
nothing, however plainly it was sent.

Hidden states are not asked about so: each is made of rows further and further away, of which a protocol may list those
that attacks look for. Of them at least one node is listed (:mod:`fglaudit.conformance.exposed_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fglaudit.conformance.exposed_rows import about_nodes
from fglaudit.conformance.side_channels import KeptMessages, aligned, moved, other_rows
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import SERVER, Embeddings, MessageBatch, Payload
from fglaudit.view import Observer


def unlisted(protocol: FederatedProtocol, graph: FederatedGraph, first: KeptMessages) -> str:
    """Return in words who receives what is made of rows that ``exposed`` does not list for it; empty if nobody does.

    All rows that are not listed for an observer, nor its own, are other ones: then it receives what it received before.

    Args:
        first: the messages of a training of ``protocol`` on ``graph`` without a defense.
    """
    listed = about_nodes(protocol, graph) - {Embeddings}
    if not listed:
        return ""
    alike: dict[tuple[int, ...], list[Observer]] = {}
    for observer in _observers(graph):
        rest = _unlisted(protocol, graph, observer)
        if len(rest):
            alike.setdefault(tuple(rest.tolist()), []).append(observer)
    for nodes, observers in alike.items():
        at, x = torch.tensor(nodes), graph.x.clone()
        x[at] = other_rows(x[at])
        other = KeptMessages.with_rows(protocol, graph, x)
        for before, after in _first_of_kind(first, other, listed):
            entries = moved(before, after)
            messages = list(set(before.entry_messages()[entries].tolist()))
            for observer in observers:
                if bool(receives(observer, before)[messages].any()):
                    who = f"{observer.name} ({observer.knowledge})" if observer.knowledge else observer.name
                    kind = type(before.payload).__name__
                    return (
                        f"{who} sees {kind} made of rows of some of the {len(nodes)} nodes that are not listed for it"
                    )
    return ""


def _observers(graph: FederatedGraph) -> Iterator[Observer]:
    """Yield the server, a few clients, pairs of them and the wire, with and without the edges: all parties' own words
    would take as many trainings."""
    last = graph.num_clients - 1
    clients = sorted({0, last // 2, last})
    parties = [(SERVER,), *((k,) for k in clients), tuple(clients[:2]), (SERVER, 0)]
    for topology in (False, True):
        yield from (Observer(members, topology=topology) for members in parties)
        yield Observer(wire=True, topology=topology)


def _unlisted(protocol: FederatedProtocol, graph: FederatedGraph, observer: Observer) -> Tensor:
    """Return the ids [n], ascending, of the nodes that are neither listed for ``observer`` nor held by its clients."""
    rest = torch.ones(graph.num_nodes, dtype=torch.bool)
    rest[protocol.exposed(graph, observer)] = False
    for k in observer.clients:
        rest[graph.clients[k]] = False
    return rest.nonzero().squeeze(1)


def _first_of_kind(
    first: KeptMessages, other: KeptMessages, listed: set[type[Payload]]
) -> Iterator[tuple[MessageBatch, MessageBatch]]:
    """Yield the batches of the first round of each of the ``listed`` payloads in both trainings, up to the first model
    or the like that differs: from there on everything depends on everything."""
    since: dict[type, int] = {}
    for before, after in zip(first.batches, other.batches, strict=False):
        if not aligned(before, after):
            return
        kind = type(before.payload)
        if kind not in listed:
            if len(moved(before, after)):
                return
        elif before.round == since.setdefault(kind, before.round):
            yield before, after


def receives(observer: Observer, batch: MessageBatch) -> Tensor:
    """Return which messages [P] of ``batch`` the observer is sent; all of them on the wire."""
    if observer.wire:
        return torch.ones(len(batch.receivers), dtype=torch.bool)
    return torch.isin(batch.receivers, torch.tensor(observer.parties))
