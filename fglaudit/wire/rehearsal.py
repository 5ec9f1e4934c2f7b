"""The public training function: the attacked protocol on graphs of the attacker's own, undefended.

``fit`` trains to the end (shadow models); ``rehearse`` also keeps the messages and may stop after the first rounds, so
that a self-test plants its leak through the protocol's own messages.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch

from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol, Trained
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.structure import Structure
from fglaudit.view import Messages, Observer
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.transcript import Transcript


class _EnoughSentError(Exception):
    """Ends a rehearsal that needs no later round."""


class _RehearsedChannel(RecordingChannel):
    """Stops after ``last`` rounds; before a message of a later one is made, if the protocol asks whether it is
    wanted."""

    last: int | None = None

    def send(self, batch: MessageBatch) -> Payload:
        if self.last is not None and batch.round > self.last:
            raise _EnoughSentError
        return super().send(batch)

    def round_done(self, round: int, rounds: int) -> None:
        if self.last is not None and round >= self.last:
            raise _EnoughSentError


def rehearsal(protocol: FederatedProtocol) -> dict[str, Any]:
    """Return ``fit`` and ``rehearse`` of ``protocol``, by the names of ``fglaudit.view.PublicFacts``; views that hold
    them can be pickled."""
    return {"fit": partial(_fit, protocol), "rehearse": partial(_rehearse, protocol)}


def _fit(protocol: FederatedProtocol, graph: FederatedGraph, rng: torch.Generator, device: torch.device) -> Trained:
    silent = RecordingChannel(DefenseSession(), graph.num_clients, rng)
    return protocol.train(graph, silent, rng=rng, device=device)


def _rehearse(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    observer: Observer,
    payloads: Iterable[type[Payload]],
    *,
    rounds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    rng: torch.Generator,
    device: torch.device,
) -> tuple[Messages, Structure]:
    """Return the messages of types ``payloads`` that ``observer`` sees in the first ``rounds`` (None: all), and what
    the protocol states of them.

    ``settings`` replace hyperparameters of the protocol; those that it lacks are left out.
    """
    known = {f.name for f in dataclasses.fields(protocol)}  # type: ignore[arg-type]
    changes = {name: value for name, value in (settings or {}).items() if name in known}
    rehearsing: FederatedProtocol = dataclasses.replace(protocol, **changes)  # type: ignore[type-var]
    transcript = Transcript()
    parties = None if observer.wire else frozenset(observer.parties)
    keep = Keep(dict.fromkeys(payloads, rounds), parties, len(observer.clients))
    channel = _RehearsedChannel(DefenseSession(), graph.num_clients, rng, transcript, keep)
    channel.last = rounds
    with contextlib.suppress(_EnoughSentError):
        rehearsing.train(graph, channel, rng=rng, device=device)
    return transcript.seen_by(observer), rehearsing.structure(graph)
