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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.planting import MemoryMessages, planted_rows, without_known_rows
from fglaudit.attacks.learned.decoder import decoded_rows, is_decodable
from fglaudit.attacks.learned.handing_over import (
    Candidate,
    best,
    guessed,
    holding_back,
    results,
    with_residual,
    without_facts,
    without_largest,
    without_payload,
)
from fglaudit.attacks.learned.hidden_rows import hidden_rows
from fglaudit.attacks.learned.own_payloads import names_nodes, own_rows, own_types
from fglaudit.attacks.learned.repeats import Combined, combined, has_repeats
from fglaudit.attacks.learned.undoing import Undone, undone
from fglaudit.attacks.learned.unexplained import unexplained
from fglaudit.facts import ROWS, Absent, Additive, Fact, Field, Sealed
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
from fglaudit.view import Auxiliary, Released, View

_PLANTED = 40
_HOOKS = ("prepare", "release")
_OF_NO_MODEL = (NeighborSums, RawFeatures, MaskedMatrices, MaskedVectors)


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
        return None if _sent_again([payload]) else cls.first_rounds

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
        if not set(view.public.hooks) & set(_HOOKS) and not _states_values(view):
            return "the defense changes neither rows nor messages: there is nothing to undo"
        if view.public.release is None:
            return "the view comes without the public defense, so nothing can be learned of it"
        if not seen:
            return "the observer reads no payload with features"
        if not unexplained(view, seen) and not any(has_repeats(view, payload) for payload in _sent_again(seen)):
            return "all that is done to messages is stated, in facts that the attacks here know"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        learning, held = holding_back(view, split(rng, "held back"))
        seen = seen_payloads(view)
        few = without_largest(learning, [p for p in seen if p not in own_types()])
        for compared in [few] if few is learning else [few, learning]:  # the largest messages, if others tell nothing
            candidates = self._candidates(compared, learning, seen, rng, device)
            if (found := best(candidates, view, compared, held, rng)) is not None:
                return found
        return guessed(view, rng)

    def _candidates(
        self, few: View, whole: View, seen: tuple[type[Payload], ...], rng: torch.Generator, device: torch.device
    ) -> Iterator[Candidate]:
        """Yield what attacks find in ``few`` messages; candidates find it again in those of ``whole``."""
        acts = whole.public.release is not None and bool(set(whole.public.hooks) & set(_HOOKS))
        touched = seen if acts else ()
        found = undone(few, touched, rng, device)
        name = type(self).name
        for payload in [p for p in own_types() if p in seen]:
            yield from own_rows(found.cleaned, payload, split(rng, payload.__name__), device)
            if acts:
                yield from own_rows(whole, payload, split(rng, f"defended {payload.__name__}"), device, defended=True)

        def more(known: Auxiliary) -> Undone:
            """Undo the defense in all messages, with what other known rows tell of secrets of the run."""
            return undone(dataclasses.replace(whole, auxiliary=known), touched, rng, device, found.public)

        def remade(make: Callable[[Auxiliary], View], of_run: bool = False) -> Callable[[Auxiliary], View] | None:
            return make if of_run or few is not whole else None

        # Models were trained on hidden rows: what clients computed with them is cleaned, what the server made is not.
        if (hidden := hidden_rows(whole, split(rng, "hidden rows"), device)) is not None:
            others = [p for p in seen if p is not RawFeatures]
            uploads = remade(lambda known: without_facts(more(known).uploads, others))
            plain = without_facts(found.uploads, others)
            yield from results(plain, others, name, split(rng, "hidden"), device, hidden, uploads)
        if found.payloads:

            def consistent(cleaned: View) -> View:
                """Return it without what models trained on hidden rows say: rows in the clear do not fit them."""
                return cleaned if hidden is None else without_payload(cleaned, Embeddings)

            def cleaned(known: Auxiliary) -> View:
                again = more(known)
                return without_facts(consistent(again.cleaned), again.payloads)

            plain = without_facts(consistent(found.cleaned), found.payloads)
            again = remade(cleaned, found.of_run)
            yield from results(plain, found.payloads, name, split(rng, "cleaned"), device, remade=again)
            if found.left:
                rough = remade(lambda known: with_residual(cleaned(known), found.left))
                noisy_view = with_residual(plain, found.left)
                yield from results(
                    noisy_view, found.payloads, name, split(rng, "cleaned roughly"), device, remade=rough
                )
        if not acts and _states_values(whole):  # no hook does what is stated
            bare = dataclasses.replace(whole, public=dataclasses.replace(whole.public, facts=()))
            yield from results(bare, seen, name, split(rng, "as if nothing were stated"), device)
        together = {p: combined(whole, p, split(rng, p.__name__)) for p in _sent_again(seen)} if acts else {}
        for payload, made in together.items():
            if made is not None:
                yield from self._combined(made, payload, split(rng, f"repeats of {payload.__name__}"), device)
        done = {*found.payloads, *(payload for payload, made in together.items() if made is not None)}
        noisy = [p for p in seen if p not in done and _has_noise(whole, p)]
        if noisy:
            yield from results(without_facts(whole, noisy), noisy, name, split(rng, "as sent"), device)
        for payload in [p for p in seen if is_decodable(few, p)]:

            def decoded(known: Auxiliary, payload: type[Payload] = payload) -> Reconstruction | None:
                again = found if few is whole else more(known)
                return decoded_rows(dataclasses.replace(again.cleaned, auxiliary=known), payload, device)

            if (rows := decoded_rows(found.cleaned, payload, device)) is not None:
                yield Candidate(rows, decoded)

    def _combined(
        self, together: Combined, payload: type[Payload], rng: torch.Generator, device: torch.device
    ) -> Iterator[Candidate]:
        """Yield what attacks find in the combination of what is sent repeatedly."""
        plain = without_facts(together.view, [payload])
        if payload in own_types():
            yield from own_rows(plain, payload, split(rng, "own"), device)
        yield from results(with_residual(plain, together.left), [payload], type(self).name, rng, device)

        def again(known: Auxiliary) -> Reconstruction | None:
            return decoded_rows(dataclasses.replace(plain, auxiliary=known), payload, device)

        if (rows := again(plain.auxiliary)) is not None:
            yield Candidate(rows, again)

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


def _sent_again(payloads: Iterable[type[Payload]]) -> list[type[Payload]]:
    """Return those of ``payloads`` whose values may be the same in every round: they depend on no model."""
    return [p for p in payloads if p in _OF_NO_MODEL or p in own_types()]


def _states_values(view: View) -> bool:
    """Whether anything is stated of what becomes of rows or of payloads in the clear."""
    return any(
        fact.target == ROWS or (isinstance(fact.target, Field) and not isinstance(fact, Sealed | Absent))
        for fact in view.public.facts
    )


def _has_noise(view: View, payload: type[Payload]) -> bool:
    return any(
        isinstance(f, Additive) and isinstance(f.target, Field) and f.target.payload == payload.__name__
        for f in view.public.facts
    )
