"""Edges from propagated public codes: a sum of few known vectors gives away which ones it is made of.

After one step of propagation the row of node j is ``sum over l in N[j] of A_jl z_l`` with codes z that everybody knows
(:class:`fglaudit.structure.Codes`). Fewer unknown weights than the code has numbers are found exactly by orthogonal
matching pursuit (Tropp and Gilbert 2007): the codes that correlate most with what is left of the row are added to its
support, weights are fitted anew, until nothing is left; codes that do not belong then have weight 0. A row that is
explained exactly shows the whole neighbourhood of its node, also of neighbours that the observer never heard of.

Where no codes are stated to be public, the server does the same with the rows of the step before, which it saw too: an
edge shows if both its ends have neighbours at other clients.

What is observed: the server sees the rows of all nodes with cross-client edges, a client those of its neighbours there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes, sees_deliveries
from fglaudit.adversary.modelled import fewer_edges
from fglaudit.adversary.planting import MemoryMessages, dealt
from fglaudit.facts import GRADIENTS, ROWS, Fact, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.codes import public_codes
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import SERVER, HopSums, MessageBatch, Payload
from fglaudit.rng import split
from fglaudit.structure import Codes
from fglaudit.view import View

_EXPLAINED = 1e-4
"""Share of a row's length that may be left over of one that is explained: rows are sent in single precision."""
_AT_ONCE = 4
"""Codes added to a support in one step."""
_WEIGHTLESS = 1e-3
"""Weight, beside the largest of its row, below which a code does not belong to an explained row."""
_BUCKET = 1024
_MATCHED = 256
"""Numbers of a row by which codes are picked, in single precision; weights are fitted to all of them in double."""


@dataclass(frozen=True)
class CodeEdges(Attack):
    """Find edges between nodes of others in propagated rows.

    Attributes:
        most: neighbours looked for in one row at most; never more than half as many as a row has numbers.
    """

    name: ClassVar[str] = "code-edges"
    consumes: ClassVar[tuple[type[Payload], ...]] = (HopSums,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "edges"
    first_rounds: ClassVar[int | None] = 1
    least: ClassVar[Mapping[str, float]] = {"most": 1}

    most: int = 32

    def models(self, fact: Fact) -> bool:
        """Feature rows and gradients are not in these sums; of an edge that was dropped there is no term."""
        return (fact.target in (ROWS, GRADIENTS) and is_built_in(fact)) or fewer_edges(fact)

    def unsupported(self, view: View) -> str | None:
        if missing := view.public.structure.missing(Codes):
            return missing
        if view.public.structure.of(Codes).width == 0 and not sees_deliveries(view):
            return "no codes are public, and a client does not see the rows from which others are made"
        if _seen(view) is None:
            return "the observer sees no row that was propagated from rows that it knows"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        seen = _seen(view)
        assert seen is not None
        known = seen.known.double().to(device)
        length = known.norm(dim=1, keepdim=True).clamp(min=1e-30)
        most = max(1, min(self.most, known.shape[1] // 2))
        pairs, scores = [torch.empty(0, 2, dtype=torch.long)], [torch.empty(0, dtype=torch.double)]
        for low in range(0, len(seen.nodes), _BUCKET):
            part = slice(low, low + _BUCKET)
            support, weight, exact = _pursue(seen.rows[part].double().to(device), seen.nodes[part], known, length, most)
            share = (weight / weight.amax(1, keepdim=True).clamp(min=1e-30)).cpu()
            nodes = seen.nodes[part].unsqueeze(1).expand_as(support)
            found = (support >= 0) & (support != nodes) & (share > _WEIGHTLESS)
            pairs.append(torch.stack([nodes[found], support[found]], 1))
            scores.append((share.clamp(0, 1) + exact.unsqueeze(1))[found])
        return Inference(self.quantity, torch.cat(pairs), torch.cat(scores))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant a perfect matching among the nodes of others, of all of which the observer sees the rows."""
        rng, n = split(rng, "plant"), view.public.num_nodes
        others = (~own_nodes(view)).nonzero().squeeze(1)
        others = others[torch.randperm(len(others), generator=rng)]
        edges = others[: len(others) // 2 * 2].view(-1, 2)
        codes = view.public.structure.of(Codes)
        start = public_codes(n, codes.width, codes.seed) if codes.width else torch.randn(n, n, generator=rng)
        first, second = edges.unbind(1)
        mean = (start[first] + start[second]) / 2
        rows = start.clone()
        rows[first], rows[second] = mean, mean
        hops = (rows,) if codes.width else (start, rows)
        owner, order = dealt(view, others), others.sort().values
        order = order[torch.argsort(owner[order], stable=True)]
        batches = tuple(_sent(view, order, owner[order], hop[order], round) for round, hop in enumerate(hops))
        public = dataclasses.replace(view.public, facts=())
        planted = dataclasses.replace(view, messages=MemoryMessages(batches), public=public)
        return Planted(planted, torch.ones(len(edges)), edges)


class _Seen(NamedTuple):
    """Rows ``rows`` [J, D] of ``nodes`` [J], made by one step from ``known`` [N, D] (0 where not known)."""

    nodes: Tensor
    rows: Tensor
    known: Tensor


def _seen(view: View) -> _Seen | None:
    """Return the rows that were made of known ones; None if the observer sees none."""
    codes, n = view.public.structure.of(Codes), view.public.num_nodes
    up = sees_deliveries(view)
    batches = (b for b in view.messages.of(HopSums) if bool((b.senders != SERVER).all()) is up)
    hops = [_distinct(batch) for batch in islice(batches, 1 if codes.width else 2)]
    if len(hops) < (1 if codes.width else 2):
        return None
    nodes, rows = hops[-1]
    if codes.width:
        return _Seen(nodes, rows[:, : codes.width], public_codes(n, codes.width, codes.seed))
    known = rows.new_zeros(n, rows.shape[1])
    known[hops[0][0]] = hops[0][1]
    return _Seen(nodes, rows, known)


def _distinct(batch: MessageBatch) -> tuple[Tensor, Tensor]:
    """Return the nodes of a batch, each once, and their rows."""
    assert isinstance(batch.payload, HopSums)
    nodes, index = torch.unique(batch.payload.nodes, return_inverse=True)
    rows = batch.payload.sums.new_zeros(len(nodes), batch.payload.sums.shape[1])
    rows[index] = batch.payload.sums
    return nodes, rows


def _pursue(rows: Tensor, nodes: Tensor, known: Tensor, length: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Explain ``rows`` [b, D] of ``nodes`` [b] by few of the ``known`` ones [N, D], which have ``length`` [N, 1].

    Returns:
        Support [b, s], -1 where there is none, on the CPU; weights [b, s]; which rows are explained [b], on the CPU.
    """
    count, width = len(rows), 1 + most
    support = torch.full((count, width), -1, device=rows.device)
    support[:, 0] = nodes.to(rows.device)
    weight = rows.new_zeros(count, width)
    exact = torch.zeros(count, dtype=torch.bool, device=rows.device)
    active, used = torch.arange(count, device=rows.device), 1
    unit = (known / length)[:, :_MATCHED].float()
    while len(active):
        chosen = known[support[active, :used]]
        gram = chosen @ chosen.transpose(1, 2)
        ridge = 1e-12 * gram.diagonal(dim1=1, dim2=2).amax(1).clamp(min=1e-30)
        gram = gram + ridge.view(-1, 1, 1) * torch.eye(used, dtype=gram.dtype, device=gram.device)
        fitted = torch.linalg.solve(gram, (chosen @ rows[active].unsqueeze(2)).squeeze(2))
        weight[active, :used] = fitted
        left = rows[active] - (fitted.unsqueeze(1) @ chosen).squeeze(1)
        done = left.norm(dim=1) <= _EXPLAINED * rows[active].norm(dim=1)
        exact[active[done]] = True
        active, left = active[~done], left[~done]
        more = min(_AT_ONCE, width - used)
        if more == 0:
            break
        match = (left[:, :_MATCHED].float() @ unit.T).scatter(1, support[active, :used], -torch.inf)
        support[active, used : used + more] = match.topk(more, dim=1).indices
        used += more
    return support.cpu(), weight, exact.cpu()


def _sent(view: View, nodes: Tensor, owner: Tensor, rows: Tensor, round: int) -> MessageBatch:
    """Return one step's messages with ``rows`` [J, D] of ``nodes`` [J], by owner: up, or down to the first observer."""
    payload = HopSums(nodes, rows)
    if sees_deliveries(view):
        senders = torch.arange(view.public.num_clients)
        starts = row_starts(owner, len(senders))
        return MessageBatch(round, senders, torch.full_like(senders, SERVER), payload, starts)
    receiver = torch.tensor([view.observer.clients[0]])
    return MessageBatch(round, torch.tensor([SERVER]), receiver, payload, torch.tensor([0, len(nodes)]))
