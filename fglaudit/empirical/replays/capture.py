"""What a protocol would send about some nodes before noise: training up to the first release, without the noise.

The defense prepares the clients' graphs as it does in training (clipping, dropped edges); the messages of the released
kind are kept as they are before :meth:`DefenseSession.release`, and training stops as soon as something else is sent.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from fglaudit.context import Release
from fglaudit.empirical.replays.canaries import FEATURES
from fglaudit.empirical.replays.passing_channel import PassingChannel
from fglaudit.empirical.replays.stated_noise import StatedNoise
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import split


class _ReleaseDoneError(Exception):
    """The release is complete; what follows is not needed."""


class _Capture(PassingChannel):
    """Implements :class:`fglaudit.interfaces.Channel`.

    Args:
        nodes: nodes whose entries are kept, ids [n].
        holders: clients that hold them [h].
        features: number of features of a row.
        largest: most numbers to keep.
    """

    def __init__(
        self,
        session: DefenseSession,
        release: Release,
        nodes: Tensor,
        holders: Tensor,
        features: int,
        largest: int,
        rng: torch.Generator,
    ) -> None:
        super().__init__(session, rng)
        self.released = release
        self.nodes = nodes
        self.holders = holders
        self.features = features
        self.largest = largest
        self.batches: list[MessageBatch] = []
        self.started = False

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        return payload is self.released.payload

    def send(self, batch: MessageBatch) -> Payload:
        by_server = bool((batch.senders == SERVER).all())
        if type(batch.payload) is self.released.payload and by_server is self.released.by_server:
            self.started = True
            self.batches.append(self._kept(batch))
        elif self.started:
            raise _ReleaseDoneError
        return batch.payload

    def round_done(self, round: int, rounds: int) -> None:
        if self.started:
            raise _ReleaseDoneError

    def _kept(self, batch: MessageBatch) -> MessageBatch:
        narrow = _narrowed(batch.payload, self.features)
        entry = sum(v[:1].numel() for v in narrow.tensors().values() if v.is_floating_point())
        if entry > self.largest:
            return batch.select(torch.zeros(len(batch.senders), dtype=torch.bool))
        ids = entry_ids(batch)
        about = torch.isin(ids, (self.holders if ids is batch.senders else self.nodes).to(ids.device))
        narrow_batch = MessageBatch(batch.round, batch.senders, batch.receivers, narrow, batch.splits)
        return narrow_batch.select_entries(about)


def _narrowed(payload: Payload, features: int) -> Payload:
    """Return ``payload`` with the first ``FEATURES`` of its ``features``, or unchanged if that axis is ambiguous."""
    if features <= FEATURES:
        return payload
    narrow = {}
    for name, value in payload.tensors().items():
        axes = [axis for axis in range(1, value.dim()) if value.shape[axis] == features]
        if len(axes) > 1:
            return payload
        narrow[name] = value.narrow(axes[0], 0, FEATURES) if axes else value
    return type(payload).from_tensors(narrow)


def entry_ids(batch: MessageBatch) -> Tensor:
    """Return the node that each entry [rows] is about; where the payload names no nodes, its sender."""
    ids = getattr(batch.payload, "nodes" if batch.payload.ragged else "node", None)
    return ids if isinstance(ids, Tensor) else batch.senders


def capture(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    session: DefenseSession,
    release: Release,
    nodes: Tensor,
    largest: int,
    *,
    rng: torch.Generator,
    device: torch.device,
) -> list[MessageBatch]:
    """Return the first release before noise: the entries about ``nodes`` [n] with at most ``largest`` numbers.

    Equal generators give equal messages up to what the features change. Where the payload does not name its nodes,
    these are the messages of the clients that hold them. Where the defense states noise for every coordinate alone,
    features in which no canary has an entry are left out.
    """
    holders = torch.tensor([k for k, held in enumerate(graph.clients) if bool(torch.isin(held, nodes).any())])
    alone = StatedNoise.of(session, release) is not None
    channel = _Capture(
        session, release, nodes, holders, graph.num_features if alone else 0, largest, split(rng, "prepare")
    )
    with contextlib.suppress(_ReleaseDoneError):
        protocol.train(graph, channel, rng=rng, device=device)
    return [batch for batch in channel.batches if len(batch.senders)]
