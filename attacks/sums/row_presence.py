"""Which clients hold a neighbour of a node, from the rows that they send: encryption does not hide their presence.

FedGCN's client m sends a row for node i if it holds i or a neighbour of i. Ciphertexts name the node as plain sums do,
because the server must know what to add up. An observer with a client's key also recognises padding: rows of zeros.

With two hops a client gets back the rows of its nodes' neighbours too, by name, whatever hides who sent what (secure
aggregation has every client send every row); with more hops those of nodes further off as well.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import sees_deliveries
from fglaudit.adversary.modelled import fewer_edges
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.public_rules import absent_clients
from fglaudit.facts import Absent, Fact, Field, Sampled, is_built_in
from fglaudit.facts.targets import Gradients, Rows
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import SERVER, Ciphertexts, MessageBatch, NeighborSums, Payload
from fglaudit.rng import split
from fglaudit.view import View

_PLANTED_SHARE = 0.3


@dataclass(frozen=True)
class RowPresence(Attack):
    """Infer which clients hold a node's neighbours from the presence of rows, encrypted or not."""

    name: ClassVar[str] = "row-presence"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (Ciphertexts,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "neighboring-clients"
    reads_ids: ClassVar[bool] = True
    first_rounds: ClassVar[int | None] = 0

    def models(self, fact: Fact) -> bool:
        """Values are not read, and of an absent client nothing is concluded; without an edge there is no row, so that
        a row still shows a neighbour."""
        values = isinstance(fact.target, Rows | Gradients) or (
            isinstance(fact.target, Field) and fact.target.name != "nodes" and not isinstance(fact, Absent | Sampled)
        )
        gone = isinstance(fact, Absent) and fact.share == 0
        return (values and is_built_in(fact)) or gone or fewer_edges(fact)

    def unsupported(self, view: View) -> str | None:
        if not sees_deliveries(view):
            return "only the server and the wire see which rows the clients send"
        return None if len(_sent(view)) else "no client's message names the nodes that its rows belong to"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        n, pairs, returned = view.public.num_nodes, _sent(view), _returned(view)
        senders = torch.unique(torch.div(pairs, n, rounding_mode="floor"))
        share = len(pairs) / max(1, len(senders) * n)
        gone = (absent_clients(view, NeighborSums)[:, None] * n + torch.arange(n)).flatten()
        estimate = torch.cat([torch.ones(len(pairs)), torch.full((len(gone),), share)])
        found, place = torch.unique(torch.cat([pairs, gone, returned]), return_inverse=True)
        score = torch.cat([estimate.double(), torch.ones(len(returned), dtype=torch.double)])
        subjects = torch.stack([torch.div(found, n, rounding_mode="floor"), found % n], 1)
        return Inference(
            self.quantity, subjects, torch.zeros(len(found), dtype=torch.double).index_add_(0, place, score)
        )

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Every other client sends rows for nodes drawn at random; these are the true answer.

        They are simulated: a rehearsal has no defense, so it sends nothing sealed.
        """
        others = torch.tensor([k for k in range(view.public.num_clients) if k not in view.observer.clients])
        pairs = torch.cartesian_prod(others, torch.arange(view.public.num_nodes))
        near = torch.rand(len(pairs), generator=split(rng, "plant")) < _PLANTED_SHARE
        nodes, count = pairs[near, 1], near.view(len(others), -1).sum(1)
        splits = torch.cat([count.new_zeros(1), count.cumsum(0)])
        payload = Ciphertexts(nodes, torch.ones(len(nodes)))
        batch = MessageBatch(0, others, torch.full_like(others, SERVER), payload, splits)
        planted = dataclasses.replace(view, messages=MemoryMessages((batch,)))
        return Planted(planted, near.double(), pairs)


def _returned(view: View) -> Tensor:
    """Return the pairs ``client N + node`` [S] of all rows that the server sends clients, sealed or not, ascending."""
    found = [torch.empty(0, dtype=torch.long)]
    for kind in (NeighborSums, Ciphertexts):
        for batch in view.messages.of(kind):
            assert isinstance(batch.payload, NeighborSums | Ciphertexts)
            message = batch.entry_messages()
            use = (batch.senders[message] == SERVER) & (batch.payload.nodes >= 0)
            found.append((batch.receivers[message] * view.public.num_nodes + batch.payload.nodes)[use])
    pairs: Tensor = torch.unique(torch.cat(found))
    return pairs


def _sent(view: View) -> Tensor:
    """Return the pairs ``client N + node`` [S] of all rows sent to the server, ascending: of a client those that can be
    read, and where none can the names of its ciphertexts."""
    n, pairs = view.public.num_nodes, torch.empty(0, dtype=torch.long)
    for kind in (NeighborSums, Ciphertexts):
        found, read = [pairs], torch.unique(torch.div(pairs, n, rounding_mode="floor"))
        for batch in view.messages.of(kind):
            assert isinstance(batch.payload, NeighborSums | Ciphertexts)
            sender = batch.senders[batch.entry_messages()]
            use = (sender != SERVER) & (batch.payload.nodes >= 0) & ~torch.isin(sender, read)
            found.append((sender * n + batch.payload.nodes)[use])
        pairs = torch.unique(torch.cat(found))
    return pairs
