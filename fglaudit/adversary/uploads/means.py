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

from fglaudit.adversary.public_rules import stated as stated_facts
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.adversary.uploads.training_counts import decay_alone, last_count
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
    count, others = averaged(view), set(range(view.public.num_clients)) - set(view.observer.clients)
    for done, seen in enumerate(_averages(view)):
        change, left, client, spread = seen.change, count - len(seen.own), EVERYBODY, 1.0
        if left > 0:
            change, spread = (count * change - seen.own.sum(0)) / left, count / left
            client = min(others) if left == len(others) == 1 else EVERYBODY
        elif len(others) == 1 and len(seen.own) and _weighted(view, done) and (other := _last_count(view)):
            counts = _training_nodes(view, seen.senders)
            spread, left, client = float(counts.sum() + other) / other, 1, min(others)
            change = spread * change - (counts @ seen.own) / other
        yield client, ModelRound(seen.held.float(), change.float(), max(left, 0), spread)
        if done + 1 == most:
            return


@dataclass(frozen=True)
class _Average:
    """One round as the observer's clients have it.

    Attributes:
        held: the model that they were sent before it [1, D].
        change: by how much the one that they are sent after it differs [1, D].
        own: by how much they themselves changed it [c, D].
        senders: which of them uploaded [c].
    """

    held: Tensor
    change: Tensor
    own: Tensor
    senders: Tensor


def _averages(view: View) -> Iterator[_Average]:
    """Yield what the server makes of uploads, round by round, in double precision."""
    changes = view.public.structure.of(Models).upload == "changes"
    sealed = changes and ModelUpdate.__name__ in view.public.sealed
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    held: Tensor | None = None
    own: list[Tensor] = []
    senders: list[Tensor] = []
    for batch, payload in view.sent(ModelUpdate):
        sent = (batch.senders == SERVER).nonzero().squeeze(1)
        if not len(sent):
            of_own = torch.isin(batch.senders, mine)
            own.append(payload.vector[of_own].double())
            senders.append(batch.senders[of_own])
            continue
        received = payload.vector[sent[:1]].double()
        if held is not None:
            change = received if sealed else received - held
            uploads = torch.cat([received[:0], *own])
            who = torch.cat([batch.senders[:0], *senders])
            yield _Average(held, change, uploads if changes else uploads - held, who)
            held = held + change
        else:
            held = received
        own, senders = [], []


@once_per_view
def _last_count(view: View) -> int:
    """Return how many training nodes the only other client has, by the first round whose weights agree on it; it is the
    same in all. 0 where none does."""
    factor = decay_alone(view)
    for done, seen in enumerate(_averages(view)):
        if not len(seen.own) or not _weighted(view, done):
            continue
        unmoved = None if factor is None else factor * seen.held[0]
        found = last_count(seen.own, _training_nodes(view, seen.senders), seen.change[0], unmoved)
        if found is not None:
            return found
    return 0


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
