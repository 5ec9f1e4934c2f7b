"""The public training function: the attacked protocol on graphs of the attacker's own, and the public defense.

``fit`` trains to the end (shadow models); ``rehearse`` also keeps the messages and may stop after the first rounds, so
that a self-test plants its leak through the protocol's own messages; ``release`` puts messages that the attacker made
up through the defense. All three bind the defense afresh: what it draws in a run is drawn from the attacker's
generator, and the session of the attacked run is never reached (Kerckhoffs).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Trained
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import split
from fglaudit.structure import Structure
from fglaudit.view import Messages, Observer, Released
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.observing.observed import Observed
from fglaudit.wire.observing.observed_graph import copied
from fglaudit.wire.transcript import Transcript

HOOKS = ("prepare", "merge", "local_update", "release", "seal")
"""Hooks by which a defense changes rows, edges, gradients and messages."""

DEFENSE_STREAM = "defense"
"""Name of the stream from which a defended rehearsal draws before anything else."""


class _EnoughSentError(Exception):
    """Ends a rehearsal that needs no later round."""


class RehearsedChannel(RecordingChannel):
    """Stops after ``last`` rounds; before a message of a later one is made, if the protocol asks whether it is
    wanted. Where ``received`` holds what the server sent in a round, parties get that and not what it sends here."""

    many_draws = False
    last: int | None = None
    received: Mapping[tuple[type[Payload], int], tuple[Tensor, Payload]] = MappingProxyType({})

    def send(self, batch: MessageBatch) -> Payload:
        if self.last is not None and batch.round > self.last:
            raise _EnoughSentError
        payload = super().send(batch)
        known = self.received.get((type(payload), batch.round))
        if known is None or not bool((batch.senders == SERVER).all()):
            return payload
        return _as_received(payload, batch.receivers, *known)

    def round_done(self, round: int, rounds: int) -> None:
        if self.last is not None and round >= self.last:
            raise _EnoughSentError


class UnwatchedChannel(RecordingChannel):
    """Does not compare what becomes of gradients with what is stated: of a shadow model nobody asks that, and it takes
    a third of the time of a private step."""

    many_draws = False

    def _update(self, gradients: Tensor) -> Tensor:
        return self.session.local_update(gradients, self._rng)


def _as_received(payload: Payload, receivers: Tensor, known: Tensor, sent: Payload) -> Payload:
    """Return ``payload`` to ``receivers`` [P] with what the parties ``known`` [Q] were sent in its place; parties of
    which that is not known get what the first of those got."""
    place = (known[None, :] == receivers[:, None]).long().argmax(1)
    values = {name: value[place] for name, value in sent.tensors().items()}
    fits = all(values[name].shape == value.shape for name, value in payload.tensors().items())
    if not fits:
        return payload
    return type(payload).from_tensors({name: values[name].to(value) for name, value in payload.tensors().items()})


def _first_of_rounds(
    batches: Iterable[MessageBatch],
) -> dict[tuple[type[Payload], int], tuple[Tensor, Payload]]:
    """Return, by payload type and round, the receivers [Q] and the payload of the server's first batch; of payloads
    with one value per message alone."""
    found: dict[tuple[type[Payload], int], tuple[Tensor, Payload]] = {}
    for batch in batches:
        if batch.splits is None and len(batch.senders) and bool((batch.senders == SERVER).all()):
            found.setdefault((type(batch.payload), batch.round), (batch.receivers, batch.payload))
    return found


def hooks_of(session: DefenseSession) -> tuple[str, ...]:
    """Return the hooks by which a bound defense acts: those that it overrides."""
    return tuple(hook for hook in HOOKS if getattr(type(session), hook) is not getattr(DefenseSession, hook))


def rehearsal(protocol: FederatedProtocol, defense: Defense | None = None) -> dict[str, Any]:
    """Return ``fit``, ``rehearse`` and, under a ``defense``, ``release``, by the names of
    ``fglaudit.view.PublicFacts``; views that hold them can be pickled."""
    found: dict[str, Any] = {
        "fit": partial(_fit, protocol, defense),
        "rehearse": partial(_rehearse, protocol, defense),
    }
    return found if defense is None else {**found, "release": partial(_release, protocol, defense)}


def _session(protocol: FederatedProtocol, defense: Defense | None, graph: FederatedGraph) -> DefenseSession:
    """Return a fresh bind of the public ``defense``.

    Raises:
        FglauditError: the view comes without it, or it does not serve the graph.
    """
    if defense is None:
        raise FglauditError(
            "a defended rehearsal needs the public defense; this view comes without one; add what"
            " fglaudit.wire.rehearsal.rehearsal(protocol, defense) returns to its public facts"
        )
    context = protocol.context(graph)
    if (why := defense.unsupported(context)) is not None:
        raise FglauditError(f"the defense must serve the graph that is made up; {why}; make up another one")
    return defense.bind(context)


def _with_settings(protocol: FederatedProtocol, settings: Mapping[str, Any] | None) -> FederatedProtocol:
    """Return ``protocol`` with other hyperparameters; those that it lacks are left out."""
    known = {f.name for f in dataclasses.fields(protocol)}  # type: ignore[arg-type]
    changes = {name: value for name, value in (settings or {}).items() if name in known}
    changed: FederatedProtocol = dataclasses.replace(protocol, **changes)  # type: ignore[type-var]
    return changed


def _fit(
    protocol: FederatedProtocol,
    defense: Defense | None,
    graph: FederatedGraph,
    rng: torch.Generator,
    device: torch.device,
    *,
    settings: Mapping[str, Any] | None = None,
    defended: bool = False,
) -> Trained:
    """Return the outcome on ``graph``; ``settings`` as in :func:`_rehearse`."""
    protocol = _with_settings(protocol, settings)
    session = _session(protocol, defense, graph) if defended else DefenseSession()
    noise = split(rng, DEFENSE_STREAM) if defended else rng
    silent = UnwatchedChannel(session, graph.num_clients, noise)
    return protocol.train(graph, silent, rng=rng, device=device)


def _rehearse(
    protocol: FederatedProtocol,
    defense: Defense | None,
    graph: FederatedGraph,
    observer: Observer,
    payloads: Iterable[type[Payload]],
    *,
    rounds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    received: Iterable[MessageBatch] = (),
    rng: torch.Generator,
    device: torch.device,
    defended: bool = False,
) -> tuple[Messages, Structure]:
    """Return the messages of types ``payloads`` that ``observer`` sees in the first ``rounds`` (None: all), and what
    the protocol states of them.

    ``settings`` replace hyperparameters of the protocol; those that it lacks are left out. ``received``: messages of
    the server that parties are to get in the place of those of the rehearsal (models of the run that is attacked).
    """
    rehearsing = _with_settings(protocol, settings)
    session = _session(rehearsing, defense, graph) if defended else DefenseSession()
    noise = split(rng, DEFENSE_STREAM) if defended else rng
    transcript = Transcript()
    parties = None if observer.wire else frozenset(observer.parties)
    keep = Keep(dict.fromkeys(payloads, rounds), parties, len(observer.clients))
    channel = RehearsedChannel(session, graph.num_clients, noise, transcript, keep)
    channel.last, channel.received = rounds, _first_of_rounds(received)
    with contextlib.suppress(_EnoughSentError):
        rehearsing.train(graph, channel, rng=rng, device=device)
    return transcript.seen_by(observer), rehearsing.stated(graph)


def _release(
    protocol: FederatedProtocol,
    defense: Defense,
    graph: FederatedGraph,
    batches: Iterable[MessageBatch] = (),
    *,
    rng: torch.Generator,
) -> Released:
    """Return what one fresh bind of ``defense`` makes of the clients of ``graph`` and of ``batches``, in this order.

    The messages need not follow from the graph: made-up values show what is done to them. Nothing is sealed.
    """
    session = _session(protocol, defense, graph)
    observed = Observed(session)
    rows, left = [], []
    for k in range(graph.num_clients):
        before = graph.client(k)
        after = session.prepare(copied(before), rng) if session.prepares() else before
        if session.prepares():
            observed.prepared(before, after)
        rows.append(after.x)
    for batch in batches:
        kept = {name: value.clone() for name, value in batch.payload.tensors().items()}
        entering = dataclasses.replace(
            batch, payload=type(batch.payload).from_tensors({name: value.clone() for name, value in kept.items()})
        )
        payload = session.release(entering, rng)
        if observed.watches("release"):
            observed.released(batch, kept, payload)
        left.append(dataclasses.replace(batch, payload=payload))
    return Released(tuple(rows), tuple(left), observed.unstated)
