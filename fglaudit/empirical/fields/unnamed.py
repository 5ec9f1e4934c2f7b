"""Does a protocol name every payload that carries a record? What it leaves out, no defense makes random, and an epsilon
would be stated that does not cover it.

The first rounds are replayed without noise, and with other records, while everything that a guarantee would be about is
held fixed. What moves nevertheless carries a record past the guarantee:

* of a release that ``covers_training``: anything beside it;
* of releases that do not, taken together: anything that is none of them;
* of gradients (DP-SGD), or of models (DP-FedAvg), together with all releases: anything else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context, Examples, Release
from fglaudit.empirical.fields.forced_replay import Held, Reach, Trace, replay
from fglaudit.empirical.fields.moves import Sent, moves
from fglaudit.empirical.replays.canaries import LENGTH, covered_nodes
from fglaudit.empirical.replays.replaced import replaced_records
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.privacy.counted import Counted
from fglaudit.rng import derive

EDGES = 6
"""Edges that are taken away or added, one at a time."""


class _Asking(DefenseSession):
    """Leaves everything as it is, and wants every payload to be made."""

    def changes(self, payload: type[Payload]) -> bool:
        return True


class _SummingSession(_Asking):
    """Sums gradients itself, so that they can be held fixed."""

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        return gradients.sum(0)


@dataclass(frozen=True)
class PlainSums(Defense):
    """Leaves everything as it is; gradients of losses are asked for one by one, and added up."""

    name: ClassVar[str] = "plain sums"

    gradients: bool = True

    def bind(self, context: Context) -> DefenseSession:
        return _SummingSession() if self.gradients else _Asking()


@dataclass(frozen=True)
class _Promise:
    """What a guarantee would be about, in words, its unit, and whether gradients are part of it."""

    words: str
    unit: str
    releases: Sequence[Release]
    models: bool = False
    gradients: bool = False

    def held(self) -> Held:
        payloads = {(release.payload.__name__, release.by_server) for release in self.releases}
        payloads |= {(ModelUpdate.__name__, False)} if self.models else set()
        return Held(gradients=self.gradients, payloads=frozenset(payloads))

    def names(self, sent: Sent, numbers: Collection[Sent]) -> bool:
        """Whether a field that moved is part of it; ``numbers`` are fields of floating-point numbers."""
        payload, by_server, field = sent
        if not by_server and any(release.by_server for release in self.releases):
            return True  # the server is trusted with it
        if (payload, by_server) not in self.held().payloads:
            return False
        stated = {name for r in self.releases if r.payload.__name__ == payload for name in r.fields}
        return field in stated if stated else sent in numbers


def unnamed_fields(
    protocol: FederatedProtocol, graph: FederatedGraph, counted: Counted, *, seed: int, device: torch.device
) -> dict[str, str]:
    """Return what carries a record past a guarantee: by guarantee and field, which records moved it.

    Args:
        counted: on the wire of a run without a defense, every kind of message of which is to be reached.
    """
    context, found = protocol.context(graph), dict[str, str]()
    for promise in _promises(context):
        defense, held, reach = PlainSums(promise.gradients), promise.held(), Reach.of(counted)

        def again(world: FederatedGraph, forced: Trace | None = None) -> Trace:
            return replay(
                protocol,
                world,
                defense,  # noqa: B023
                context,
                seed=seed,
                device=device,
                forced=forced,
                held=held,  # noqa: B023
                reach=reach,  # noqa: B023
            )

        first = again(graph)
        numbers = {
            (type(batch.payload).__name__, by_server, name)
            for batch in first.batches
            for name, value in batch.payload.tensors().items()
            for by_server in (False, True)
            if value.is_floating_point()
        }
        for what, world in _worlds(graph, promise.unit, seed):
            for sent in moves(first, again(world, first)).fields:
                if not promise.names(sent, numbers):
                    side = "the server's" if sent[1] else "clients'"
                    found.setdefault(f"{promise.words}: {side} {sent[0]}.{sent[2]}", what)
    return found


def _worlds(graph: FederatedGraph, unit: str, seed: int) -> Iterator[tuple[str, FederatedGraph]]:
    """Yield graphs in which every record that a guarantee of ``unit`` names is another one: what no single record moves
    all together do not move, one after the other."""
    if unit == "edge":
        for pair in replaced_records(graph, unit, derive(seed, "unnamed"), EDGES):
            yield pair.what, pair.graph
        return
    named = covered_nodes(graph, unit)
    order, own = torch.randperm(len(named), generator=derive(seed, "unnamed")), graph.x[named]
    # The opposite makes a classifier answer otherwise that knows one class alone.
    for what, rows in (("rows of others", own[order]), ("the opposite, long,", -LENGTH * own)):
        x = graph.x.clone()
        x[named] = rows
        yield f"{what} in place of those of every {unit}", replace(graph, x=x)


def _promises(context: Context) -> Iterator[_Promise]:
    releases = context.releases
    for release in releases:
        if release.covers_training:
            yield _Promise(f"noise on {release.payload.__name__}", release.unit, (release,))
    if releases and not any(release.covers_training for release in releases):
        yield _Promise("noise on all releases", releases[0].unit, releases)
    if isinstance(context.examples, Examples):
        yield _Promise("noise on gradients", "node", releases, gradients=True)
    if not isinstance(context.uploads, str):
        yield _Promise("noise on models", "client", releases, models=True)
