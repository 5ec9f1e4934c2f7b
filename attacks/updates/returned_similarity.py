"""Which clients have alike data, from the models that the server returns to them.

GCFL+ (Xie et al. 2021, arXiv:2106.13423, section 4.2) parts clients into clusters by the norms of their updates and
returns one model per cluster: the same model is the same cluster. FED-PUB and FedGT return averages of their own, in
which clients that the server takes to be alike weigh most. The score of a pair is the cosine of their last models, less
the mean of all clients'.

What is observed: whoever sees what several clients receive, as the server and the wire do; no upload is read. A client
learns nothing of others in this way: colluding ones see whether they are in one cluster, and hold each other's labels
anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.updates.client_pairs import FEWEST, TOO_FEW, ClientPairs, pair_scores, planted_pairs
from fglaudit.interfaces import Inference, Planted
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate
from fglaudit.view import View


@dataclass(frozen=True)
class ReturnedSimilarity(ClientPairs):
    """Rank pairs of clients by how alike the models are that the server returns to them."""

    name: ClassVar[str] = "returned-similarity"
    last_rounds: ClassVar[int | None] = 1

    def unsupported(self, view: View) -> str | None:
        clients, models = returned(view)
        if len(clients) == 0 and view.observer.clients:
            return (
                "the observer sees only the models that its own clients receive; these show which of its own are taken"
                " to be alike, and their labels it holds"
            )
        if len(clients) < FEWEST:
            return f"{TOO_FEW}; the observer sees models that the server returns to {len(clients)}"
        if bool((models == models[:1]).all()):
            return "the server returns one model to all clients: it tells none from another"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        clients, models = returned(view)
        rows = models.to(device, torch.double)
        marks = normalize(rows - rows.mean(0), dim=1).nan_to_num(0.0)
        return pair_scores(clients, (marks @ marks.T).cpu())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant a last round in which clients receive the same model two by two."""
        clients, _ = returned(view)
        pairs, same, kind = planted_pairs(clients)
        size = sum(math.prod(shape) for shape in view.public.layout.values())
        sent = ModelUpdate(torch.randn(len(clients), size, generator=rng)[kind])
        batch = MessageBatch(1, torch.full_like(clients, SERVER), clients, sent)
        return Planted(without_defense(view, MemoryMessages((batch,))), same, pairs)


@once_per_view
def returned(view: View) -> tuple[Tensor, Tensor]:
    """Return the clients [K], ascending, that are not the observer's and whose models from the server it sees, and the
    last one of each [K, D]."""
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    size = sum(math.prod(shape) for shape in view.public.layout.values())
    last, seen = torch.zeros(0, size), torch.zeros(view.public.num_clients, dtype=torch.bool)
    for batch, payload in view.sent(ModelUpdate):
        chosen = (batch.senders == SERVER) & ~torch.isin(batch.receivers, mine)
        if bool(chosen.any()):
            if not len(last):
                last = payload.vector.new_zeros(view.public.num_clients, payload.vector.shape[1])
            last[batch.receivers[chosen]] = payload.vector[chosen]
            seen[batch.receivers[chosen]] = True
    clients = seen.nonzero().squeeze(1)
    return clients, last[clients]
