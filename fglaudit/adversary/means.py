"""Means of clients' models, less what the observer's own clients sent: what is left is the mean of the others.

The server returns the mean of n uploads, with equal weights, to every client. An observer with c of the n senders knows
their uploads, and so has the mean of the other n - c: of the single one that is left, its very upload, whatever sealed
it on the way (Bonawitz et al., CCS 2017, section 2, leave that to how clients are chosen). Of a mean weighted by
training nodes the single one follows too, once weights have said how many it has (:mod:`.training_counts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.adversary.once_per_view import once_per_view
from fglaudit.adversary.public_rules import stated as stated_facts
from fglaudit.adversary.training_counts import decay_alone, last_count
from fglaudit.facts import Absent
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.structure import Models
from fglaudit.view import View

EVERYBODY = -1
"""In place of a client: the mean of several."""


@dataclass(frozen=True)
class ModelRound:
    """One round of the same clients' models: what they received and by how much they changed it, [K, D] each.

    Attributes:
        of: how many uploads ``change`` is the mean of, where it follows from the one that the server returned; 0: it is
            an upload as sent, or nobody knows.
        spread: by how much errors of what the server returned grew in ``change``.
    """

    received: Tensor
    change: Tensor
    of: int = 0
    spread: float = 1.0

    def one(self, place: int) -> ModelRound:
        """Return the round of one of the clients, by its place among them."""
        part = slice(place, place + 1)
        return replace(self, received=self.received[part], change=self.change[part])


def averaged(view: View) -> int:
    """Return of how many uploads the server returns the mean, with equal weights; 0 where that is not known."""
    stated = view.public.structure.get(Models)
    count = 0 if stated is None else stated.averaged
    for fact in stated_facts(view, ModelUpdate):
        if isinstance(fact, Absent):
            count -= len(fact.clients) + math.floor(fact.share * count + 0.5)
    return count


def others_means(view: View, most: int | None = None) -> Iterator[tuple[int, ModelRound]]:
    """Yield the mean of the models of others than the observer's clients, [1, D], of at most ``most`` rounds, from the
    first, and whose it is: a client, where there is but one other, or ``EVERYBODY``.

    Where it is not known how the server weights uploads, or all were the observer's, the mean is that of all. Of sealed
    models that are changes the server returns the mean change.
    """
    changes = view.public.structure.of(Models).upload == "changes"
    sealed = changes and ModelUpdate.__name__ in view.public.sealed
    mine, count, done = torch.tensor(view.observer.clients, dtype=torch.long), averaged(view), 0
    others = set(range(view.public.num_clients)) - set(view.observer.clients)
    held: Tensor | None = None
    own: list[Tensor] = []
    senders: list[Tensor] = []
    other: int | None = None
    for batch in view.messages.of(ModelUpdate):
        assert isinstance(batch.payload, ModelUpdate)
        sent = (batch.senders == SERVER).nonzero().squeeze(1)
        if not len(sent):
            of_own = torch.isin(batch.senders, mine)
            own.append(batch.payload.vector[of_own].double())
            senders.append(batch.senders[of_own])
            continue
        received = batch.payload.vector[sent[:1]].double()
        if held is None:
            held, own, senders = received, [], []
            continue
        change = received if sealed else received - held
        uploads = torch.cat([received[:0], *own])
        left, client, spread = count - len(uploads), EVERYBODY, 1.0
        if left > 0:
            known = (uploads if changes else uploads - held).sum(0)
            rest, spread = (count * change - known) / left, count / left
            client = min(others) if left == len(others) == 1 else EVERYBODY
        elif len(others) == 1 and len(uploads) and _weighted(view, done):
            moved, counts = uploads if changes else uploads - held, _training_nodes(view, torch.cat(senders))
            factor = decay_alone(view)
            other = other or last_count(moved, counts, change[0], None if factor is None else factor * held[0])
            if other is not None:
                spread, left, client = float(counts.sum() + other) / other, 1, min(others)
                rest = spread * change - (counts @ moved) / other
        yield client, ModelRound(held.float(), (rest if left > 0 else change).float(), max(left, 0), spread)
        held, own, senders, done = held + change, [], [], done + 1
        if done == most:
            return


def _weighted(view: View, done: int) -> bool:
    """Whether every client uploads in every round, and is weighted by its training nodes in the one after ``done``."""
    stated = view.public.structure.of(Models)
    if stated.mean_rounds and done >= stated.mean_rounds:
        return False
    absent = any(isinstance(fact, Absent) for fact in stated_facts(view, ModelUpdate))
    return stated.by_training_nodes and not absent


def _training_nodes(view: View, clients: Tensor) -> Tensor:
    """Return how many training nodes the observer's ``clients`` [c] have [c]."""
    counts = {own.client: float(own.train.sum()) for own in view.own}
    return torch.tensor([counts[k] for k in clients.tolist()], dtype=torch.double)


@once_per_view
def one_is_left(view: View) -> bool:
    """Whether the mean of the others is a single client's upload."""
    if view.public.structure.get(Models) is None or len(set(view.observer.clients)) != view.public.num_clients - 1:
        return False
    return any(client != EVERYBODY for client, _ in others_means(view))
