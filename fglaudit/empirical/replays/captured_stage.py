"""Messages that a protocol makes of a graph with a canary row, or one edge more or less, replayed through the release
with its noise.

Where rows are clipped and the protocol states how far they move its messages, only messages that it really made can
show that it states too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fglaudit.context import REPORTING_NODE, Release
from fglaudit.empirical.replays.canaries import LENGTH, Canary, canary_nodes, covered_nodes
from fglaudit.empirical.replays.capture import capture
from fglaudit.empirical.replays.replaced import replaced_records
from fglaudit.empirical.replays.stages import Pair, Stage
from fglaudit.empirical.replays.stated_noise import StatedNoise
from fglaudit.empirical.replays.strongest_messages import repeated, strongest
from fglaudit.federated.neighborhood import with_neighbors
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.accounting import Relation
from fglaudit.rng import derive

NODES = 6
"""Nodes that canaries are tried at."""
BEST = 3
"""Canaries that are replayed: those that move the messages most."""
NUMBERS = 4096
"""Most numbers of one replay."""


@dataclass(frozen=True, kw_only=True)
class CapturedStage(Stage):
    """Messages of the first release.

    Attributes:
        found: canaries, those that move the messages most first.
        farthest: largest distance, in L2 over all messages of a release, that a canary moved them.
        size: numbers of one replay.
        record: what canaries are, in words.
    """

    found: tuple[Pair, ...]
    farthest: float
    size: int
    fields: tuple[str, ...] = field(default=())
    record: str = "a canary's row"

    @property
    def name(self) -> str:
        return f"{super().name} made of {self.record}"

    @property
    def numbers(self) -> int:
        return self.size * self.noise.releases

    def pairs(self, rng: torch.Generator) -> Sequence[Pair]:
        return self.found

    def side_by_side(self, given: list[MessageBatch], copies: int, rng: torch.Generator) -> Tensor:
        session = self.fresh()
        seen = []
        for _ in range(self.noise.releases):
            parts = []
            for batch in given:
                released = session.release(repeated(batch, copies), rng).tensors()
                named = self.fields or tuple(n for n, v in batch.payload.tensors().items() if v.is_floating_point())
                parts += [released[name].double().reshape(copies, -1) for name in named]
            seen.append(torch.cat(parts, 1))
        return torch.stack(seen, 1)


def captured_stage(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    release: Release,
    whole: Stage,
    fresh: Callable[[], DefenseSession],
    *,
    seed: int,
    device: torch.device,
) -> CapturedStage | None:
    """Return the stage for ``release`` with canaries at nodes of every client and degree, or with and without an edge;
    None if none reaches it.

    Args:
        whole: the same noise on synthetic messages.
    """
    if release.unit == "edge":
        return _edge_stage(protocol, graph, release, whole, fresh, seed=seed, device=device)
    rng = derive(seed, "audits", "canaries")
    session = fresh()
    stated = StatedNoise.of(session, release)
    # Where models come first, a training node's row moves them, which is another mechanism's and not held fixed here.
    nodes = _nodes(graph, rng, REPORTING_NODE if release.row_norm is not None else "node")
    near = torch.zeros(graph.num_nodes, dtype=torch.bool)
    near[nodes] = True
    ids = with_neighbors(near, graph.edge_index).nonzero().squeeze(1)
    empty = graph
    rows = _rows(graph, rng)
    for node in nodes:
        empty = Canary(node, rows[0][1]).insert(empty, 0)
    turned = whole.relation is Relation.REPLACE

    def messages(world: FederatedGraph) -> list[MessageBatch]:
        train = derive(seed, "audits", "train")  # the same masks in every world
        return capture(protocol, world, fresh(), release, ids, NUMBERS, rng=train, device=device)

    zeroed = [] if turned else messages(empty)
    found: list[tuple[float, int, Pair]] = []
    farthest = 0.0
    for number, node in enumerate(nodes):
        name, row = rows[number % len(rows)]
        canary = Canary(node, row)
        present = messages(canary.insert(empty, 1))
        absent = messages(canary.insert(empty, -1)) if turned else zeroed
        farthest = max(farthest, _distance(present, absent, stated.fields if stated else ()))
        title = f"{name} at node {node} of degree {int(graph.degrees()[node].item())}"
        found += _canary(title, present, absent, stated)
    return _stage(whole, found, farthest, stated, "a canary's row")


def _edge_stage(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    release: Release,
    whole: Stage,
    fresh: Callable[[], DefenseSession],
    *,
    seed: int,
    device: torch.device,
) -> CapturedStage | None:
    """Return the stage with graphs that differ from ``graph`` in one edge."""
    stated = StatedNoise.of(fresh(), release)
    found: list[tuple[float, int, Pair]] = []
    farthest = 0.0
    for other in replaced_records(graph, "edge", derive(seed, "audits", "canaries"), NODES):
        both = [world.edge_index[0] * graph.num_nodes + world.edge_index[1] for world in (graph, other.graph)]
        changed, count = torch.unique(torch.cat(both), return_counts=True)
        ids = torch.unique(changed[count == 1] % graph.num_nodes)
        if len(ids) == 0:  # the edge was there before
            continue

        def messages(world: FederatedGraph, ids: Tensor = ids) -> list[MessageBatch]:
            train = derive(seed, "audits", "train")
            return capture(protocol, world, fresh(), release, ids, NUMBERS, rng=train, device=device)

        present, absent = messages(graph), messages(other.graph)
        farthest = max(farthest, _distance(present, absent, stated.fields if stated else ()))
        found += _canary(other.what, present, absent, stated)
    return _stage(whole, found, farthest, stated, "one edge")


def _canary(
    title: str, present: list[MessageBatch], absent: list[MessageBatch], stated: StatedNoise | None
) -> list[tuple[float, int, Pair]]:
    """Return how far the messages of two worlds are apart, how many numbers tell, and these; none where none does."""
    pair = strongest(present, absent, stated, NUMBERS)
    return [(pair.divergence, pair.numbers, Pair(title, pair.present, pair.absent))] if pair.numbers else []


def _stage(
    whole: Stage,
    found: Sequence[tuple[float, int, Pair]],
    farthest: float,
    stated: StatedNoise | None,
    record: str,
) -> CapturedStage | None:
    if not found:
        return None
    best = sorted(found, key=lambda each: -each[0])[:BEST]
    return CapturedStage(
        noise=whole.noise,
        relation=whole.relation,
        fresh=whole.fresh,
        stated=whole.stated,
        factor=whole.factor,
        found=tuple(pair for _, _, pair in best),
        farthest=farthest,
        size=max(numbers for _, numbers, _ in best),
        fields=stated.fields if stated else (),
        record=record,
    )


def _nodes(graph: FederatedGraph, rng: torch.Generator, unit: str) -> list[int]:
    """Return nodes with extreme degrees, then a random one of every client, at most ``NODES``, of those that ``unit``
    names."""
    chosen, named = canary_nodes(graph, unit), covered_nodes(graph, unit)
    for k in torch.randperm(graph.num_clients, generator=rng).tolist():
        own = graph.clients[k][torch.isin(graph.clients[k], named)]
        if len(own):
            chosen.append(int(own[int(torch.randint(len(own), (1,), generator=rng).item())].item()))
    return list(dict.fromkeys(chosen))[:NODES]


def _rows(graph: FederatedGraph, rng: torch.Generator) -> list[tuple[str, Tensor]]:
    """Return rows [F]: one number, all numbers, a random direction."""
    norm = LENGTH * max(1.0, float(graph.x.norm(dim=-1).max().item()))
    one = torch.zeros(graph.num_features)
    one[int(torch.randint(graph.num_features, (1,), generator=rng).item()) % 64] = norm
    even = torch.full((graph.num_features,), norm / graph.num_features**0.5)
    any_ = torch.randn(graph.num_features, generator=rng)
    return [("one number", one), ("all numbers", even), ("a random row", norm * any_ / any_.norm())]


def _distance(present: Sequence[MessageBatch], absent: Sequence[MessageBatch], fields: Sequence[str]) -> float:
    total = 0.0
    for one, other in zip(present, absent, strict=True):
        there, gone = one.payload.tensors(), other.payload.tensors()
        for name, value in there.items():
            if value.is_floating_point() and (not fields or name in fields):
                total += float((value.double() - gone[name].double()).square().sum().item())
    return math.sqrt(total)
