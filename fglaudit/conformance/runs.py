"""A small graph, and a training on it with everything recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FeatureKind, FederatedGraph, canonical_edges
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Trained
from fglaudit.parties.base import Behaviour
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.recording import Recording, record_training
from fglaudit.rng import derive
from fglaudit.scoring.truth import GroundTruth
from fglaudit.view import Observer, View
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.side_knowledge import draw_auxiliary
from fglaudit.wire.transcript import Transcript

CPU = torch.device("cpu")


def example_graph(
    *, nodes: int = 60, features: int = 24, clients: int = 3, classes: int = 3, seed: int = 0
) -> FederatedGraph:
    """Return a small random graph with binary features, split evenly over ``clients``; every third node of a class
    trains, the next validates and the one after it is tested. With as many clients as nodes client k holds node k."""
    rng = derive(seed, "example-graph")
    y = torch.arange(nodes) % classes
    pairs = torch.randint(nodes, (2, 3 * nodes), generator=rng)
    keep = (y[pairs[0]] == y[pairs[1]]) | (torch.rand(3 * nodes, generator=rng) < 0.2)
    words = torch.rand(classes, features, generator=rng) * 0.5
    drawn = torch.randperm(nodes, generator=rng)
    order = torch.arange(nodes) if clients == nodes else drawn
    owned = tuple(part.sort().values for part in order.chunk(clients))
    split = torch.arange(nodes) // classes % 3
    return FederatedGraph(
        x=(torch.rand(nodes, features, generator=rng) < words[y]).float(),
        y=y,
        edge_index=canonical_edges(pairs[:, keep], nodes),
        clients=owned,
        train=tuple(split[ids] == 0 for ids in owned),
        val=tuple(split[ids] == 1 for ids in owned),
        test=tuple(split[ids] == 2 for ids in owned),
        name="example",
        num_classes=classes,
        features=FeatureKind.BINARY,
    )


@dataclasses.dataclass(frozen=True)
class Run:
    """A recorded training run with its truth."""

    defense: Defense
    channel: RecordingChannel
    recording: Recording
    truth: GroundTruth

    @property
    def protocol(self) -> FederatedProtocol:
        return self.truth.protocol

    @property
    def graph(self) -> FederatedGraph:
        return self.truth.graph

    @property
    def trained(self) -> Trained:
        return self.truth.trained

    @property
    def session(self) -> DefenseSession:
        """The defense as it was bound to this run."""
        return self.channel.session

    @property
    def transcript(self) -> Transcript:
        """The recorded messages."""
        return self.recording.transcript

    def view(self, observer: Observer, *, seed: int = 0) -> View:
        """Return the view of ``observer``, whose auxiliary rows ``seed`` draws."""
        side, share = self.recording.side, observer.auxiliary
        drawn = {**side.auxiliary, share: draw_auxiliary(self.graph, share, seed)}
        return dataclasses.replace(self.recording, side=dataclasses.replace(side, auxiliary=drawn)).view(observer)


def record(
    protocol: FederatedProtocol,
    graph: FederatedGraph | None = None,
    defense: Defense | None = None,
    *,
    seed: int = 0,
    tamper: Callable[[MessageBatch, Payload], Payload] | None = None,
    empirical: bool = False,
    behaviour: Behaviour | None = None,
) -> Run:
    """Train ``protocol`` with everything recorded. ``tamper(batch, payload)`` may replace what receivers get (for rule
    2); ``empirical`` audits by replays what ``defense`` promises; ``behaviour`` is of a party that breaks the rules."""
    channels: list[_TamperedChannel] = []

    def channel(*arguments: Any) -> RecordingChannel:
        channels.append(_TamperedChannel(*arguments))
        channels[-1].tamper = tamper
        return channels[-1]

    defense = defense or NoDefense()
    recording, truth = record_training(
        graph or example_graph(),
        protocol,
        defense,
        seed=seed,
        channel=channel,
        empirical=empirical,
        behaviour=behaviour,
    )
    return Run(defense, channels[0], recording, truth)


class _TamperedChannel(RecordingChannel):
    tamper: Callable[[MessageBatch, Payload], Payload] | None = None

    def send(self, batch: MessageBatch) -> Payload:
        payload = super().send(batch)
        return payload if self.tamper is None else self.tamper(batch, payload)
