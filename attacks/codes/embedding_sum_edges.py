"""Edges from the second sum of embeddings: whose rows is it made of?

From the second step on GAP sums the totals of the step before, at length 1, all of which the server has sent itself;
where the first step sums public codes, it knows those as well.
Client m's sum for node i is then ``sum over neighbours j of i at m of h_j`` of known ``h_j``, plus noise. Which of m's
nodes are in it is found twice over: by how likely each is under a Gaussian with the mean and covariance of all others
(the linear estimate with least squared error), and, where little noise is left, by matching pursuit: the node whose row
takes most off what is left is one, until nothing comes off that noise would not bring.

Both ends of an edge have a sum; their scores are added up.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import MemoryMessages, dealt
from fglaudit.attacks.codes.seen_embeddings import (
    Step,
    models_embeddings,
    noise_level,
    not_stated,
    receivers,
    sees_parts,
    steps,
)
from fglaudit.facts import Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.codes import public_codes
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import SERVER, EmbeddingSums, MessageBatch, Payload
from fglaudit.structure import EmbeddedRows
from fglaudit.view import View

_LISTED = 48
"""Nodes listed for one sum, the likeliest; pairs that no sum lists rank last."""
_MOST = 12
"""Nodes that matching pursuit takes into one sum at most."""
_BUCKET = 4096
_PURSUED = 1e6
"""Score of the first node that pursuit takes without noise: above any other."""


@dataclass(frozen=True)
class EmbeddingSumEdges(Attack):
    """Find edges between nodes in sums of rows that the observer knows."""

    name: ClassVar[str] = "embedding-sum-edges"
    consumes: ClassVar[tuple[type[Payload], ...]] = (EmbeddingSums,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "edges"

    def models(self, fact: Fact) -> bool:
        """As all attacks on these sums."""
        return models_embeddings(fact)

    def unsupported(self, view: View) -> str | None:
        if why := not_stated(view):
            return why
        if not sees_parts(view):
            return "a client does not see the totals from which later sums are made"
        stated = view.public.structure.of(EmbeddedRows)
        if stated.code_seed >= 0:
            return None
        if stated.later != "totals":
            return "what later steps sum depends on rows that the observer does not know"
        return None if stated.steps > 1 else "one step: it sums rows that the observer does not know"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        owner, std, n = receivers(view), noise_level(view, up=True), view.public.num_nodes
        totals, parts = steps(view, up=False), steps(view, up=True)
        pairs = [torch.empty(0, dtype=torch.long)]
        scores = [torch.empty(0, dtype=torch.double)]
        stated = view.public.structure.of(EmbeddedRows)
        known = [_totals(step, n) for step in totals]
        if stated.code_seed >= 0:
            known.insert(0, public_codes(n, stated.width, stated.code_seed).double())
        else:
            parts = parts[1:]
        for rows, after in zip(known, parts, strict=False):
            rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
            for client in torch.unique(after.sender).tolist():
                mine = (owner == client).nonzero().squeeze(1)
                used = (after.sender == client).nonzero().squeeze(1)
                for chosen in used.split(_BUCKET):
                    likely = _likely(
                        after.sums[chosen].to(device), rows[mine].to(device), std, after.node[chosen], mine
                    )
                    found, score = (part.cpu() for part in likely)
                    other, node = mine[found], after.node[chosen].unsqueeze(1).expand_as(found)
                    low, high = torch.minimum(other, node), torch.maximum(other, node)
                    keep = (low != high) & torch.isfinite(score)
                    pairs.append((low * n + high)[keep])
                    scores.append(score[keep])
        codes, index = torch.unique(torch.cat(pairs), return_inverse=True)
        total = torch.zeros(len(codes), dtype=torch.double).index_add_(0, index, torch.cat(scores))
        return Inference(self.quantity, torch.stack([codes // n, codes % n], 1), total)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant a perfect matching among the nodes of others in the second step, and totals of random directions."""
        n = view.public.num_nodes
        others = (~own_nodes(view)).nonzero().squeeze(1)
        others = others[torch.randperm(len(others), generator=rng)]
        owner = dealt(view, others)
        edges = others[: len(others) // 2 * 2].view(-1, 2)
        rows = torch.randn(n, view.public.structure.of(EmbeddedRows).width, generator=rng)
        rows = rows / rows.norm(dim=1, keepdim=True)
        held = (owner >= 0).nonzero().squeeze(1)
        held = held[torch.argsort(owner[held], stable=True)]
        node, source = torch.cat([edges, edges.flip(1)]).T
        order = torch.argsort(owner[source], stable=True)
        node, source = node[order], source[order]
        clients = torch.arange(view.public.num_clients)
        server = torch.full_like(clients, SERVER)
        starts, sent = row_starts(owner[held], len(clients)), row_starts(owner[source], len(clients))
        stated = view.public.structure.of(EmbeddedRows)
        first = torch.zeros_like(rows[source])
        if stated.code_seed >= 0:
            codes = public_codes(n, stated.width, stated.code_seed)
            first = (codes / codes.norm(dim=1, keepdim=True))[source]
        batches = (
            MessageBatch(1, clients, server, EmbeddingSums(node, first), sent),
            MessageBatch(1, server, clients, EmbeddingSums(held, rows[held]), starts),
            MessageBatch(2, clients, server, EmbeddingSums(node, rows[source]), sent),
        )
        public = dataclasses.replace(view.public, facts=())
        planted = dataclasses.replace(view, messages=MemoryMessages(batches), public=public)
        return Planted(planted, torch.ones(len(edges)), edges)


def _totals(step: Step, count: int) -> Tensor:
    """Return the totals of a step, by node [count, D]."""
    rows = torch.zeros(count, step.sums.shape[1], dtype=torch.double)
    rows[step.node] = step.sums
    return rows


def _likely(sums: Tensor, rows: Tensor, std: float, node: Tensor, mine: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of ``rows`` [M, D] are most likely in each of ``sums`` [R, D], and how likely, [R, k] each.

    Args:
        node: whose sum it is [R]; it is not in its own.
        mine: the nodes of the rows [M].
    """
    count = max(1, len(rows))
    size = sums.norm(dim=1).square().mean() / max(1.0, float(rows.norm(dim=1).square().mean()))
    share = float((size - std**2 * sums.shape[1]).clamp(min=0.5).item()) / count
    share = min(0.5, share)
    spread = share * (1 - share) * rows.T @ rows + std**2 * torch.eye(
        rows.shape[1], dtype=rows.dtype, device=rows.device
    )
    score = share * (sums - share * rows.sum(0)) @ torch.linalg.solve(spread, rows.T)
    score[(node.unsqueeze(1) == mine).to(score.device)] = -math.inf
    _pursue(score, sums.clone(), rows, std, count)
    top = score.topk(min(_LISTED, count), dim=1)
    return top.indices, top.values


def _pursue(score: Tensor, left: Tensor, rows: Tensor, std: float, count: int) -> None:
    """Raise the ``score`` [R, M] of rows that take more off what is ``left`` [R, D] than noise would bring."""
    length = rows.norm(dim=1).square()
    least = max(1e-3, 2 * std * math.sqrt(2 * math.log(count + 1)))
    open_ = torch.isfinite(score)
    for step in range(_MOST):
        gain = (2 * left @ rows.T - length).masked_fill(~open_, -math.inf)
        best, at = gain.max(1)
        taken = best > least
        if not bool(taken.any()):
            return
        index = taken.nonzero().squeeze(1)
        left[index] -= rows[at[index]]
        open_[index, at[index]] = False
        explained = left[index].norm(dim=1) <= 1e-3
        score[index, at[index]] += best[index] / std**2 + explained * _PURSUED / (step + 1)
