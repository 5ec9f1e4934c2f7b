"""Single clients' uploads from means over different senders, and the rows of their first layers from those.

Under secure aggregation the server sees who sends and the mean of what they send. In rounds that start from the same
model (:mod:`fglaudit.parties.repeat_models`) a client uploads the same every time, but for dropout. R means over sets
of senders are then linear equations in K uploads; that of client k follows if the unit vector e_k lies in the row space
of the sets [R, K]: two sets that differ by one client are enough for its upload. Those that follow are taken apart by
:mod:`fglaudit.attacks.updates.update_inversion`, as if they had been sent in the clear.

Errors of the means (noise, which is drawn afresh in every round, and rounding) enter a client's upload by its row of
the sets' pseudo-inverse, and rows below them are not claimed.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import sees_deliveries
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.public_rules import noise_std, rounding_of_sums
from fglaudit.attacks.updates.input_layer import unreadable_layer
from fglaudit.attacks.updates.update_inversion import UpdateInversion
from fglaudit.facts import Additive, Fact, Field
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import SERVER, Ciphertexts, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.structure import Models
from fglaudit.view import View

MOST_ROUNDS = 256
_FOLLOWS = 1e-6
"""How far e_k may be from the row space of the sets of senders."""
_ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Single:
    """Uploads that follow from means.

    Attributes:
        clients: [S].
        received: the model that they started from [1, D].
        uploads: [S, D].
        error: standard deviation on their entries, the largest of all clients.
    """

    clients: Tensor
    received: Tensor
    uploads: Tensor
    error: float


@dataclass(frozen=True)
class DifferencedUpdates(Attack):
    """Rebuild the rows of clients' first layers from means over different senders."""

    name: ClassVar[str] = "differenced-updates"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (Ciphertexts,)
    computed_from: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"
    quantity: ClassVar[str] = "layer-inputs"
    first_rounds: ClassVar[int | None] = MOST_ROUNDS
    sealed_only: ClassVar[bool] = True

    def models(self, fact: Fact) -> bool:
        return UpdateInversion().models(fact)

    def unsupported(self, view: View) -> str | None:
        if not sees_deliveries(view) or ModelUpdate.__name__ not in view.public.sealed:
            return "only where uploads are sealed, and the observer sees who sends, do means show more than it has"
        if view.public.structure.get(Models) is None:
            return Models.missing()
        if view.public.structure.of(Models).upload != "weights":
            return "means are compared of models that start from the same one; these are of changes"
        found = single_uploads(view)
        if found is None or not len(found.clients):
            return "no two rounds start from the same model with other senders, so that no single upload follows"
        return unreadable_layer(view) or UpdateInversion(1).unsupported(_in_the_clear(view, found))

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found = single_uploads(view)
        assert found is not None
        return UpdateInversion(1).run(_in_the_clear(view, found), rng=rng, device=device)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted | None:
        """Plant clients of two rows each, and their means: of all, and without each client in turn."""
        found = single_uploads(view)
        if found is None:
            return None
        planted = UpdateInversion(1).plant(_in_the_clear(view, found), rng=rng)
        first, sent = planted.view.messages.of(ModelUpdate)
        assert isinstance(first.payload, ModelUpdate) and isinstance(sent.payload, ModelUpdate)
        model, uploads, clients = first.payload.vector[:1], sent.payload.vector.double(), sent.senders
        batches = [_sent_down(0, model, clients)]
        for round in range(1, len(clients) + 2):
            there = torch.arange(len(clients)) != round - 2
            if not bool(there.any()):
                continue
            shown = Ciphertexts(torch.full((int(there.sum()),), -1), torch.ones(int(there.sum())))
            up = torch.full_like(clients[there], SERVER)
            batches.append(MessageBatch(round, clients[there], up, shown, torch.arange(len(up) + 1)))
            batches.append(_sent_down(round, uploads[there].mean(0, keepdim=True).float(), clients))
            batches.append(_sent_down(round, model, clients))
        public = dataclasses.replace(planted.view.public, sealed=view.public.sealed)
        messages = MemoryMessages(tuple(batches))
        return dataclasses.replace(planted, view=dataclasses.replace(planted.view, messages=messages, public=public))


def single_uploads(view: View) -> Single | None:
    """Return the uploads that follow from the rounds that start from the first model; None where there are none."""
    senders = _senders(view)
    start: Tensor | None = None
    held: Tensor | None = None
    seen, sets, sums = -1, [], []
    for batch in view.messages.of(ModelUpdate):
        assert isinstance(batch.payload, ModelUpdate)
        if bool((batch.senders != SERVER).any()):
            continue
        model = batch.payload.vector[:1].double()
        if start is None or held is None:
            start = held = model
            seen = batch.round
            continue
        new, seen = batch.round != seen, batch.round  # the first message of a round is the mean of what was sent
        if new and batch.round in senders and torch.equal(held, start) and batch.round <= MOST_ROUNDS:
            sets.append(senders[batch.round])
            sums.append(model * len(senders[batch.round]))
        held = model
    if start is None or not sets:
        return None
    clients = torch.tensor(sorted(set().union(*sets)))
    matrix = torch.stack([torch.isin(clients, torch.tensor(sorted(one))) for one in sets]).double()
    inverse = torch.linalg.pinv(matrix)
    follows = ((inverse @ matrix - torch.eye(len(clients))).abs().amax(1) < _FOLLOWS).nonzero().squeeze(1)
    uploads = inverse[follows] @ torch.cat(sums)
    most = max(len(one) for one in sets)
    up, down = (noise_std(view, ModelUpdate, "vector", direction) for direction in ("up", "down"))
    rounded = most * _ROUNDING * float(start.square().mean().sqrt().item())  # of the mean, to float32
    spread = float(inverse[follows].norm(dim=1).max().item()) if len(follows) else 0.0
    # What a client's encoding rounds is the same in every round, and is not spread.
    encoded = rounding_of_sums(view, ModelUpdate) / view.public.num_clients
    error = math.hypot(spread * math.hypot(most**0.5 * up, most * down, rounded), encoded)
    return Single(clients[follows], start.float(), uploads.float(), error)


def _senders(view: View) -> dict[int, set[int]]:
    """Return who sent a sealed model, by round."""
    found: dict[int, set[int]] = {}
    for batch in view.messages.of(Ciphertexts):
        about = batch.payload.ids()
        if about is not None and bool((about < 0).all()):
            found.setdefault(batch.round, set()).update(batch.senders[batch.senders != SERVER].tolist())
    return found


def _in_the_clear(view: View, found: Single) -> View:
    """Return ``view`` with the uploads that follow as messages, and their errors as noise on them."""
    server = torch.full_like(found.clients, SERVER)
    down = MessageBatch(0, server, found.clients, ModelUpdate(found.received.expand(len(server), -1)))
    up = MessageBatch(1, found.clients, server, ModelUpdate(found.uploads))
    about = (ModelUpdate.__name__,)
    facts = tuple(fact for fact in view.public.facts if getattr(fact.target, "payload", "") not in about)
    error = Additive(Field(ModelUpdate.__name__, "vector", "up"), "gaussian", found.error)
    sealed = tuple(name for name in view.public.sealed if name not in about)
    public = dataclasses.replace(view.public, facts=(*facts, error) if found.error > 0 else facts, sealed=sealed)
    return dataclasses.replace(view, messages=MemoryMessages((down, up)), public=public)


def _sent_down(round: int, model: Tensor, clients: Tensor) -> MessageBatch:
    return MessageBatch(
        round, torch.full_like(clients, SERVER), clients, ModelUpdate(model.expand(len(clients), -1).clone())
    )
