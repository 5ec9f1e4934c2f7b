"""Sums that an observer of ``NeighborSums`` recorded, and the clients that may own each node."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, own_nodes, sees_deliveries
from fglaudit.adversary.public_rules import fewest_neighbors, kept_edges, merged_size
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.graph import first_of_each
from fglaudit.payloads import SERVER, NeighborSums
from fglaudit.structure import Sums
from fglaudit.view import View


@dataclass(frozen=True)
class RecordedSums:
    """Distinct sums in a view.

    Attributes:
        parties: the client that uploaded the partial sum, or ``SERVER`` for a total sum [n].
        nodes: the node it is the sum of [n].
        values: [n, F], float32 as sent.
        deliveries: (receiver, node) of every total sum the observer saw delivered [2, d].
    """

    parties: Tensor
    nodes: Tensor
    values: Tensor
    deliveries: Tensor


def sees_parts(view: View) -> bool:
    """Whether the observer reads what every client uploads."""
    if not sees_deliveries(view) or NeighborSums.__name__ not in view.public.sealed:
        return sees_deliveries(view)
    senders = [batch.senders for batch in view.messages.of(NeighborSums)]
    others = torch.tensor([SERVER, *view.observer.clients])
    return any(bool((~torch.isin(s, others)).any()) for s in senders)


def missing_sums(view: View) -> str | None:
    """Return why there is nothing to attack in ``view``, or None."""
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    if not any(bool((~torch.isin(b.senders, mine)).any()) for b in view.messages.of(NeighborSums)):
        return "the observer saw no NeighborSums of another party"
    stated = view.public.structure.get(Sums)
    if stated is None:
        return Sums.missing()
    if stated.added_by != "server":
        return "sums whose parts clients send to one another are not modelled, and no sign of protection"
    return None


@once_per_view
def recorded_sums(view: View) -> RecordedSums:
    """Collect the sums of pre-training, not those of repetitions; a sum delivered to several receivers is kept once."""
    batches = [batch for batch in view.messages.of(NeighborSums) if batch.round == 0]
    message = [batch.entry_messages() for batch in batches]
    payloads = [batch.payload for batch in batches if isinstance(batch.payload, NeighborSums)]
    parties = torch.cat([batch.senders[m] for batch, m in zip(batches, message, strict=True)])
    receivers = torch.cat([batch.receivers[m] for batch, m in zip(batches, message, strict=True)])
    nodes = torch.cat([p.nodes for p in payloads])
    values = torch.cat([p.sums for p in payloads])
    total = parties == SERVER
    _, _, first = first_of_each((parties + 1) * view.public.num_nodes + nodes)
    return RecordedSums(parties[first], nodes[first], values[first], torch.stack([receivers[total], nodes[total]]))


def shared(view: View, sums: RecordedSums) -> Tensor:
    """Return which sums [N] are seen to be made of parts of several clients. No rule on edges cut their nodes off."""
    uploads = sums.nodes[sums.parties >= 0] if sees_parts(view) else sums.nodes[:0]
    return torch.bincount(uploads, minlength=view.public.num_nodes) > 1


def owners(view: View, sums: RecordedSums, edges: Tensor) -> Tensor:
    """Return the client of every node [N] by :func:`possible_owners`, -1 where several are possible."""
    candidates = possible_owners(view, sums, edges)
    return torch.where(candidates.sum(1) == 1, candidates.long().argmax(1), -1)


def possible_owners(view: View, sums: RecordedSums, edges: Tensor) -> Tensor:
    """Return which clients may hold each node [N, K], as far as an observer of all messages via the server can infer.

    With one hop a total sum goes to its owner alone. With more hops three rules narrow the candidates: the owner of j
    receives the sums of j and of each neighbour of j; and, where uploads can be read, it uploads a part of each of
    them, and whoever uploads a part of the sum of i holds one of i's closed neighbours. Where nodes with few remote
    neighbours are cut off from them, the first holds of j, the second of neighbours, that are not.
    """
    n, k = view.public.num_nodes, view.public.num_clients
    candidates = torch.zeros(n, k, dtype=torch.bool)
    candidates[sums.deliveries[1], sums.deliveries[0]] = True
    candidates[:, list(view.observer.clients)] = False
    for client in view.own:
        candidates[client.nodes] = torch.arange(k) == client.client
    if view.public.structure.of(Sums).hops > 1 and merged_size(view) == 1:
        # A client's own edges are already those that its bound leaves.
        sure = edges if view.topology is None else kept_edges(view, edges, known_degrees(view))
        keeps, loop = shared(view, sums) | (fewest_neighbors(view) == 1), sure[0] == sure[1]
        row, column = sure[:, loop | keeps[sure[0]]]
        got = torch.zeros(n, k, dtype=torch.int8)
        got[sums.deliveries[1], sums.deliveries[0]] = 1
        got[:, list(view.observer.clients)] = 1
        candidates &= torch.ones_like(got).scatter_reduce(0, row[:, None].expand(-1, k), got[column], "amin").bool()
        uploaded = sums.parties >= 0
        sent = torch.zeros(n, k, dtype=torch.int8)
        sent[sums.nodes[uploaded], sums.parties[uploaded]] = 1
        if sees_parts(view):
            row, column = sure[:, loop | keeps[sure[1]]]
            every = row[:, None].expand(-1, k)
            candidates &= torch.ones_like(sent).scatter_reduce(0, every, sent[column], "amin").bool()
        row, column = edges
        whole = own_nodes(view) | (view.topology is not None)  # nodes all of whose neighbours are known
        while True:
            holders = torch.zeros(n, k).index_add_(0, row, candidates[column].float())
            only = (sent.bool() & (holders == 1) & whole[:, None])[row] & candidates[column]
            forced = (
                torch.zeros_like(sent)
                .scatter_reduce(0, column[:, None].expand(-1, k), only.to(torch.int8), "amax")
                .bool()
            )
            narrowed = torch.where(forced.any(1, keepdim=True), candidates & forced, candidates)
            if bool((narrowed == candidates).all()):
                break
            candidates = narrowed
    return candidates
