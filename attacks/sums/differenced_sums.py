"""Rows from two sums over different senders: their difference is the message of the one that is missing.

Secure aggregation shows the server the sums over all clients that send, and who sends. Where pre-training is repeated
without client m (:mod:`fglaudit.parties.repeat_pretraining`; a client that drops out or leaves does the same), the sum
of node i with m and without it differ by ``P[m, i]``, as if nothing had been aggregated. Of the nodes whose sums m
receives the part holds the node's own row, and is read as :mod:`fglaudit.attacks.sums.server_partial_sums` reads parts.

Noise is in both sums, drawn afresh for each: a difference has its variance twice. Its size is read off the entries
below zero, where rows are not negative and no part has any.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.public_rules import rounding_of_sums
from fglaudit.attacks.sums.equations.sum_errors import added_to_sums
from fglaudit.attacks.sums.planting import plant_lone_neighbors
from fglaudit.attacks.sums.recorded_sums import missing_sums
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums, read_parts
from fglaudit.facts import Fact
from fglaudit.graph import positions
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import SERVER, Ciphertexts, MessageBatch, NeighborSums, Payload
from fglaudit.view import View

_ROUNDINGS = 4 * 2.0**-24
"""Of float32, in a difference of two sums, with room."""


@dataclass(frozen=True)
class Difference:
    """What one client's absence shows: its parts [n, F] of the sums of ``nodes`` [n], and ``size`` [n], the largest
    entry of each sum, to which rounding is relative."""

    client: int
    nodes: Tensor
    parts: Tensor
    size: Tensor


@dataclass(frozen=True)
class DifferencedSums(Attack):
    """Rows of clients without which pre-training was repeated."""

    name: ClassVar[str] = "differenced-sums"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (Ciphertexts,)
    metric: ClassVar[str] = "exact_rate"

    def models(self, fact: Fact) -> bool:
        """What changes a part changes its difference alike."""
        return ServerPartialSums().models(fact)

    def unsupported(self, view: View) -> str | None:
        why = ServerPartialSums().unsupported(view) or missing_sums(view)
        if why is None and not differences(view):
            return "no pre-training was repeated without exactly one of its senders, as far as the observer sees"
        return why

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        found = differences(view)
        nodes = torch.cat([one.nodes for one in found])
        parts = torch.cat([one.parts for one in found])
        chosen = ~own_nodes(view)[nodes]
        nodes, parts = nodes[chosen], parts[chosen].to(device)
        largest = max((float(one.size.max().item()) for one in found if len(one.size)), default=0.0)
        error = 2 * rounding_of_sums(view, NeighborSums) + _ROUNDINGS * largest
        return read_parts(view, nodes, parts, _noise(view, parts), error)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant sums that hold one row each, and the same once more for every client, without its nodes' rows."""
        planted = plant_lone_neighbors(view, rng, lone_nodes=True)
        deliveries = [b for b in planted.view.messages.of(NeighborSums) if bool((b.senders == SERVER).all())]
        clients = torch.unique(torch.cat([b.receivers for b in deliveries]))
        batches: list[MessageBatch] = []
        for absent in (None, *clients.tolist()):
            taking_part = clients if absent is None else clients[clients != absent]
            batches.append(_announced(taking_part, 0 if absent is None else absent + 1))
            batches += [b if absent is None else _without(b, absent) for b in deliveries]
        return dataclasses.replace(
            planted, view=dataclasses.replace(planted.view, messages=MemoryMessages(tuple(batches)))
        )


def differences(view: View) -> list[Difference]:
    """Return what the sums of every repetition that lacks exactly one client lack."""
    senders: dict[int, set[int]] = {}
    totals: dict[int, list[MessageBatch]] = {}
    for kind in (NeighborSums, Ciphertexts):
        for batch in view.messages.of(kind):
            about = batch.payload.ids()
            if kind is Ciphertexts and (about is None or bool((about < 0).all())):
                continue  # models: no row is any node's
            sent = batch.senders[batch.senders != SERVER]
            senders.setdefault(batch.round, set()).update(sent.tolist())
            if kind is NeighborSums and bool((batch.senders == SERVER).all()):
                totals.setdefault(batch.round, []).append(batch)
    found = []
    for round in sorted(totals):
        gone = senders.get(0, set()) - senders.get(round, set())
        if round == 0 or 0 not in totals or len(gone) != 1:
            continue
        found.append(_difference(view, totals[0], totals[round], gone.pop()))
    return found


def _difference(view: View, first: list[MessageBatch], again: list[MessageBatch], client: int) -> Difference:
    """Return the parts of ``client`` in the sums that it received."""
    nodes, values, _ = _totals(first, client)
    later, others, _ = _totals(again, None)
    place = positions(later, view.public.num_nodes)
    there = place[nodes] >= 0
    nodes, values = nodes[there], values[there]
    return Difference(client, nodes, values - others[place[nodes]], values.abs().amax(1))


def _totals(batches: list[MessageBatch], receiver: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return nodes [n], sums [n, F] and receivers [n] of what the server sent, to ``receiver`` alone or to anybody."""
    parts = []
    for batch in batches:
        assert isinstance(batch.payload, NeighborSums)
        to = batch.receivers[batch.entry_messages()]
        kept = torch.ones_like(to, dtype=torch.bool) if receiver is None else to == receiver
        parts.append((batch.payload.nodes[kept], batch.payload.sums[kept].double(), to[kept]))
    nodes, sums, receivers = (torch.cat(column) for column in zip(*parts, strict=True))
    return nodes, sums, receivers


def _noise(view: View, parts: Tensor) -> Tensor:
    """Return the standard deviation of the noise on differences [R, F]; 0 where none is stated."""
    if len(parts) == 0:
        return parts.new_zeros(0)
    below = parts.clamp(max=0)
    spread = (below.square().sum(1) / (below < 0).sum(1).clamp(min=1)).sqrt()
    stated = torch.hypot(added_to_sums(view, parts, "up"), added_to_sums(view, parts, "down"))
    return torch.where(stated > 0, torch.maximum(spread, stated), 0.0)


def _announced(clients: Tensor, round: int) -> MessageBatch:
    """Return what the server sees of sealed uploads: who sent."""
    shown = Ciphertexts(torch.zeros_like(clients), torch.ones(len(clients)))
    return MessageBatch(round, clients, torch.full_like(clients, SERVER), shown, torch.arange(len(clients) + 1))


def _without(batch: MessageBatch, client: int) -> MessageBatch:
    """Return the sums ``batch`` as they are without ``client``: of its own nodes, that nobody else adds to, nothing."""
    assert isinstance(batch.payload, NeighborSums)
    its = batch.receivers[batch.entry_messages()] == client
    sums = batch.payload.sums.masked_fill(its[:, None], 0.0)
    return dataclasses.replace(batch, round=client + 1, payload=NeighborSums(batch.payload.nodes, sums))
