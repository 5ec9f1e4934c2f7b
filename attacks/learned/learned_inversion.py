"""Rows from messages that a defense obfuscated: learn what it did, undo it, and attack what is left.

A defense is public (Kerckhoffs): its code and constants can be run on made-up rows, and secrets that it draws in a run
are attacked from rows which the observer knows, which it sees go in and come out. From such pairs the inverse is
learned - affine maps of columns or of rows, orders of columns, rotations, tables, curves, remainders, maps by node or
client, mixtures of rows - and the cleaned messages are handed to the attacks that know the payload. What cannot be
cleaned is decoded directly, by regression of known rows on messages.

It runs where something is done to messages that no stated fact explains, and shows leaks only: what it does not learn
says nothing (``models`` is False of every fact).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.planting import MemoryMessages, planted_rows, without_known_rows
from fglaudit.attacks.learned.candidates import candidates, changes_messages, sent_again, states_values
from fglaudit.attacks.learned.delegation import best, guessed, holding_back, without_largest
from fglaudit.attacks.learned.own_payloads import names_nodes, own_types
from fglaudit.attacks.learned.repeats import has_repeats
from fglaudit.attacks.learned.unexplained import unexplained
from fglaudit.facts import Fact
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import (
    SERVER,
    Embeddings,
    GlobalNodes,
    HiddenRepresentations,
    Jacobians,
    Latents,
    MaskedMatrices,
    MaskedVectors,
    MessageBatch,
    NeighborSums,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
    RawFeatures,
)
from fglaudit.rng import derive, split
from fglaudit.structure import Attention, Structure
from fglaudit.view import Released, View

_PLANTED = 40


@dataclass(frozen=True)
class LearnedInversion(Attack):
    """Learn from the public defense and from known rows what was done to messages, undo it, and attack the rest."""

    name: ClassVar[str] = "learned-inversion"
    consumes: ClassVar[tuple[type[Payload], ...]] = ()
    also_reads: ClassVar[tuple[type[Payload], ...]] = (
        NeighborSums,
        RawFeatures,
        MaskedMatrices,
        MaskedVectors,
        Embeddings,
        Latents,
        HiddenRepresentations,
        Jacobians,
        PropagatedRepresentations,
        PropagatedJacobians,
        GlobalNodes,
    )
    metric: ClassVar[str] = "cosine"

    first_rounds: ClassVar[int | None] = 1
    leaks_only: ClassVar[bool] = True

    @classmethod
    def last_round(cls, payload: type[Payload]) -> int | None:
        """Of what may be sent again all rounds are read, of the rest the first."""
        return None if sent_again([payload]) else cls.first_rounds

    @classmethod
    def reads(cls) -> tuple[type[Payload], ...]:
        """Return the payloads with features, and all that do not come with this project."""
        return (*cls.also_reads, *own_types())

    def models(self, fact: Fact) -> bool:
        """Of no fact: it may show a leak, never its absence."""
        return False

    def unsupported(self, view: View) -> str | None:
        seen = seen_payloads(view)
        own = [payload for payload in seen if payload in own_types()]
        if any(names_nodes(view, payload) for payload in own):
            return None
        if own and len(own) == len(seen):
            return "messages of a payload that no attack here knows do not say whose rows they are"
        if not changes_messages(view) and not states_values(view):
            return "the defense changes neither rows nor messages: there is nothing to undo"
        if view.public.release is None:
            return "the view comes without the public defense, so nothing can be learned of it"
        if not seen:
            return "the observer reads no payload with features"
        if not unexplained(view, seen) and not any(has_repeats(view, payload) for payload in sent_again(seen)):
            return "all that is done to messages is stated, in facts that the attacks here know"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        learning, held = holding_back(view, split(rng, "held back"))
        seen = seen_payloads(view)
        few = without_largest(learning, [p for p in seen if p not in own_types()])
        for compared in [few] if few is learning else [few, learning]:  # the largest messages, if others tell nothing
            rows = candidates(compared, learning, seen, type(self).name, rng, device)
            if (found := best(rows, view, compared, held, rng)) is not None:
                return found
        return guessed(view, rng)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Rows in the clear, with their columns in another order and other signs by a rule that is public."""
        mine = torch.zeros(view.public.num_nodes, dtype=torch.bool)
        for client in view.own:
            mine[client.nodes] = True
        nodes = (~mine).nonzero().squeeze(1)[:_PLANTED]
        rows = planted_rows(view, nodes, rng)
        strangers = [k for k in range(view.public.num_clients) if k not in view.observer.clients] or [0]
        sent = _flipped(RawFeatures(nodes, rows))
        splits = torch.tensor([0, len(nodes)])
        batch = MessageBatch(0, torch.tensor(strangers[:1]), torch.tensor([SERVER]), sent, splits)
        public = dataclasses.replace(
            view.public,
            facts=(),
            hooks=("release",),
            release=_planted_release,
            rehearse=None,
            structure=Structure((Attention(degree=1, domain=1.0, rows="as-held"),)),
        )
        planted = dataclasses.replace(
            view,
            messages=MemoryMessages((batch,)),
            auxiliary=without_known_rows(view.auxiliary),
            public=public,
        )
        return Planted(planted, rows, nodes)


def _flipped(payload: RawFeatures) -> RawFeatures:
    order = torch.randperm(payload.x.shape[1], generator=derive(0, "planted order"))
    return RawFeatures(payload.nodes, -payload.x[:, order])


def _planted_release(graph: FederatedGraph, batches: Iterable[MessageBatch] = (), *, rng: torch.Generator) -> Released:
    """Return what the planted defense makes of ``batches``."""
    made = []
    for batch in batches:
        assert isinstance(batch.payload, RawFeatures)
        made.append(dataclasses.replace(batch, payload=_flipped(batch.payload)))
    return Released((), tuple(made), ())


def seen_payloads(view: View) -> tuple[type[Payload], ...]:
    """Return the payloads with features of which the observer reads messages of others."""
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    found = []
    for payload in LearnedInversion.reads():
        if any(bool((~torch.isin(batch.senders, mine)).any()) for batch in view.messages.of(payload)):
            found.append(payload)
    return tuple(found)
