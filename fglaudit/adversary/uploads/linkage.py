"""Linking messages of one client across rounds where a shuffler hides the senders.

A client's global nodes are the centroids of its own nodes. Its model updates follow the gradients of its own nodes; in
round 1 they even show the words that none of its nodes has, whose rows move by weight decay alone. The mean over all
clients is subtracted; the score of a pair of messages is the cosine of what remains. Noise that the defense adds has
about the same norm in every message and shrinks all cosines alike.

Only :func:`pseudonymous` is read: values without senders, in an order of each round's own. What the server sends back
is not used: a client's next message starts from it, which would link consecutive rounds directly.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.adversary.modelled import about, change_clip, fresh_error, sealed
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.uploads.held import missing_uploads, one_other, sending_clients, uploads
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.facts import Absent, Fact, Field, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.shuffling import message_codes, shuffled
from fglaudit.view import View


def pseudonymous(view: View, payload: type[Payload], most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield codes [K] and values [K, ...] of the messages that others upload, in the first ``most`` rounds."""
    for round, values in enumerate(uploads(view, payload, most), start=1):
        yield message_codes(round, len(values)), values[shuffled(round, len(values))]


@dataclass(frozen=True)
class LinkageAttack(Attack):
    """Link the messages of the one payload that a subclass consumes."""

    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "linkage"
    first_rounds: ClassVar[int | None] = 10

    def models(self, fact: Fact) -> bool:
        """Nothing is assumed of how a client's messages come about, but that the same makes them in every round; fresh
        errors and clips change all cosines alike."""
        payload = type(self).consumes[0]
        gone = isinstance(fact, Absent) and about(fact, payload) and fact.share == 0
        sent = fresh_error(fact, payload) or change_clip(fact, payload) or sealed(fact, payload) or gone
        return sent or (is_built_in(fact) and not isinstance(fact.target, Field))

    def unsupported(self, view: View) -> str | None:
        payload = type(self).consumes[0]
        if (missing := missing_uploads(view, payload) or one_other(view)) is not None:
            return missing
        sent = [len(values) for values in uploads(view, payload, type(self).first_rounds)]
        if len(sent) < 2:
            return f"the observer sees a single round of {payload.__name__}: there is nothing to link"
        others = view.public.num_clients - len(view.observer.clients)
        if min(sent) < others:  # the answer is of messages that all send in every round
            return f"links are asked of clients that all upload in every round; {min(sent)} of {others} do in one"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        most = type(self).first_rounds
        assert most is not None
        codes, marks = [], []
        for code, values in pseudonymous(view, type(self).consumes[0], most):
            rows = values.flatten(1).to(device, torch.double)
            codes.append(code)
            # Messages of a training that diverged hold no numbers, and look like no other ones.
            marks.append(normalize(rows - rows.mean(0), dim=1).nan_to_num(0.0))
        pairs, scores = [], []
        for first, second in itertools.combinations(range(len(marks)), 2):
            pairs.append(torch.cartesian_prod(codes[first], codes[second]))
            scores.append((marks[first] @ marks[second].T).flatten().cpu())
        return Inference(type(self).quantity, torch.cat(pairs), torch.cat(scores))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant two rounds in which every client sends the same.

        They are simulated: in a rehearsal no message repeats another, since every round starts from other weights.
        """
        payload = type(self).consumes[0]
        values = next(uploads(view, payload, 1))
        clients = sending_clients(view, payload)
        (field,) = dataclasses.fields(payload)  # type: ignore[arg-type]
        same = payload.from_tensors({field.name: torch.randn(values.shape, generator=rng)})
        server = torch.full_like(clients, SERVER)
        batches = tuple(MessageBatch(round, clients, server, same) for round in (1, 2))
        count = len(clients)
        pairs = torch.cartesian_prod(message_codes(1, count), message_codes(2, count))
        truth = (shuffled(1, count).unsqueeze(1) == shuffled(2, count)).flatten().double()
        return Planted(without_defense(view, MemoryMessages(batches)), truth, pairs)
