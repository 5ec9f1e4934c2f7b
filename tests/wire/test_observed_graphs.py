"""What a defense makes of rows, edges and groups of neighbours is compared with what it states."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from observed_runs import caught
from torch import Tensor
from user_graphs import user_graph

from fglaudit.context import Context
from fglaudit.defenses.graph.minimum_neighborhood import MinimumNeighborhood
from fglaudit.facts import (
    EDGES,
    ROWS,
    Additive,
    Clipped,
    DegreeBound,
    DroppedEdges,
    Edges,
    Fact,
    KeptColumns,
    Merged,
    Randomised,
    Rows,
)
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.privacy.degree_bound import bound_degrees
from fglaudit.privacy.mechanism import clip_rows
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.testing import check_protocol, example_graph, record
from fglaudit.wire.channel import RecordingChannel


@dataclasses.dataclass
class Prepares(DefenseSession):
    change: Callable[[ClientGraph, torch.Generator], ClientGraph]
    stated: tuple[Fact, ...] = ()

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        return self.change(client, rng)

    def facts(self) -> tuple[Fact, ...]:
        return self.stated


def rows_of(
    change: Callable[[Tensor, torch.Generator], Tensor],
) -> Callable[[ClientGraph, torch.Generator], ClientGraph]:
    return lambda client, rng: dataclasses.replace(client, x=change(client.x, rng))


def without_few(client: ClientGraph, fewest: int = 3) -> ClientGraph:
    count = torch.bincount(client.boundary[0], minlength=len(client.nodes))
    boundary = client.boundary[:, count[client.boundary[0]] >= fewest]
    kept, position = torch.unique(boundary[1], return_inverse=True)
    assert client.remote_degrees is not None
    return dataclasses.replace(
        client,
        remote_nodes=client.remote_nodes[kept],
        remote_degrees=client.remote_degrees[kept],
        boundary=torch.stack([boundary[0], position]),
    )


def reports(x: Tensor, rng: torch.Generator, sampled: int = 4, epsilon: float = 2.0) -> Tensor:
    chosen = torch.rand(x.shape, generator=rng).topk(sampled, dim=1).indices
    lie = 1 / (math.exp(epsilon) + 1)
    one = torch.rand(chosen.shape, generator=rng) < lie + x.gather(1, chosen) * (1 - 2 * lie)
    found: Tensor = torch.zeros_like(x).scatter_(1, chosen, 2 * one.float() - 1)
    return found


def bits(sampled: int = 4, epsilon: float = 2.0) -> Fact:
    stated = {"sampled_features": sampled, "bit_epsilon": epsilon, "low": 0.0, "high": 1.0}
    return Randomised(ROWS, "multi-bit", tuple(stated.items()))


GRAPH = example_graph(nodes=300, features=24, clients=3)
PREPARED: dict[str, tuple[Prepares, type | None]] = {
    "same": (Prepares(lambda c, g: c), None),
    "clipped rows": (Prepares(rows_of(lambda x, g: clip_rows(x, 1.0)), (Clipped(ROWS, "L2", 1.0, "row"),)), None),
    "unstated clip": (Prepares(rows_of(lambda x, g: clip_rows(x, 1.0))), Rows),
    "noise": (
        Prepares(
            rows_of(lambda x, g: clip_rows(x, 1.0) + 0.5 * torch.randn(x.shape, generator=g)),
            (Clipped(ROWS, "L2", 1.0, "row"), Additive(ROWS, "gaussian", 0.5)),
        ),
        None,
    ),
    "more noise": (
        Prepares(
            rows_of(lambda x, g: x + 0.75 * torch.randn(x.shape, generator=g)), (Additive(ROWS, "gaussian", 0.5),)
        ),
        Rows,
    ),
    "silent noise": (Prepares(rows_of(lambda x, g: x + 0.01 * torch.randn(x.shape, generator=g))), Rows),
    "in place": (Prepares(rows_of(lambda x, g: x.mul_(2))), Rows),
    "swapped rows": (Prepares(rows_of(lambda x, g: x.flip(0))), Rows),
    "reports": (Prepares(rows_of(reports), (bits(),)), None),
    "reports of more features": (Prepares(rows_of(lambda x, g: reports(x, g, 5)), (bits(),)), Rows),
    "reports that lie more": (Prepares(rows_of(lambda x, g: reports(x, g, 4, 1.0)), (bits(),)), Rows),
    "labels": (Prepares(lambda c, g: dataclasses.replace(c, y=c.y.roll(1))), Rows),
    "who trains": (Prepares(lambda c, g: dataclasses.replace(c, train=~c.train)), Rows),
    "kept columns": (
        Prepares(rows_of(lambda x, g: x * (torch.arange(24) < 5)), (KeptColumns(ROWS, (0, 1, 2, 3, 4)),)),
        None,
    ),
    "fewer columns": (
        Prepares(rows_of(lambda x, g: x * (torch.arange(24) < 4)), (KeptColumns(ROWS, (0, 1, 2, 3, 4)),)),
        Rows,
    ),
    "few neighbours": (Prepares(lambda c, g: without_few(c), (DroppedEdges(EDGES, 3),)), None),
    "fewer neighbours": (Prepares(lambda c, g: without_few(c, 4), (DroppedEdges(EDGES, 3),)), Edges),
    "unstated drop": (Prepares(lambda c, g: without_few(c)), Edges),
    "degree bound": (Prepares(lambda c, g: bound_degrees(c, 2, 0), (DegreeBound(EDGES, 2, 0),)), None),
    "degree bound by another seed": (
        Prepares(lambda c, g: bound_degrees(c, 2, 1), (DegreeBound(EDGES, 2, 0),)),
        Edges,
    ),
    "one edge": (Prepares(lambda c, g: dataclasses.replace(c, edge_index=c.edge_index[:, 2:])), Edges),
}


def read_all(client: ClientGraph) -> None:
    """Read it as a protocol does that uses all of it."""
    assert client.edges().shape[0] == 2 and len(client.x) == len(client.nodes)


@pytest.mark.parametrize("name", PREPARED)
def test_what_clients_start_from(name: str) -> None:
    session, expected = PREPARED[name]
    channel = RecordingChannel(session, 3, derive(0, "defense"))
    for k in range(3):
        read_all(channel.prepare(GRAPH.client(k)))
    assert caught(channel) == ({expected} if expected else set())


@pytest.mark.parametrize(
    ("name", "read", "expected"),
    [
        ("few neighbours", lambda c: c.x, Edges),
        ("few neighbours", lambda c: c.edge_index, Edges),
        ("few neighbours", lambda c: c.boundary, None),
        ("degree bound", lambda c: c.x, None),
        ("kept columns", lambda c: c.edges(), Rows),
        ("kept columns", lambda c: c.x, None),
        ("noise", lambda c: c.y, Rows),
        ("same", lambda c: c.y, None),
    ],
)
def test_what_the_protocol_never_reads_is_not_done(
    name: str, read: Callable[[ClientGraph], object], expected: type | None
) -> None:
    """Attacks reckon with what is stated, and would be called not adapted to it."""
    channel = RecordingChannel(PREPARED[name][0], 3, derive(0, "defense"))
    for k in range(3):
        read(channel.prepare(GRAPH.client(k)))
    assert caught(channel) == ({expected} if expected else set())


def test_edges_that_the_protocol_says_it_does_not_use_are_not_dropped() -> None:
    """Also where it reads them: here the context says so."""
    for states, expected in ((False, {Edges}), (True, set())):
        channel = RecordingChannel(PREPARED["few neighbours"][0], 3, derive(0, "defense"))
        channel.states(Context("any", 1, 3, 24, (), cross_edges=states))
        for k in range(3):
            read_all(channel.prepare(GRAPH.client(k)))
        assert caught(channel) == expected


def test_groups_that_nobody_asks_for_are_not_merged() -> None:
    session = Prepares(lambda c, g: c, (Merged(EDGES, 2),))
    channel = RecordingChannel(session, 3, derive(0, "defense"))
    for k in range(3):
        read_all(channel.prepare(GRAPH.client(k)))
    assert caught(channel) == {Edges}


@dataclasses.dataclass(frozen=True)
class Boasting(NFedGNN):
    """States that it uses edges between clients, and reads rows alone."""

    name: ClassVar[str] = "boasting"

    def cross_edges(self, graph: FederatedGraph) -> bool:
        return True


def test_a_protocol_that_boasts_of_edges_is_found_out() -> None:
    graph = user_graph(nodes=24)
    run = record(Boasting(hidden=4, rounds=1), graph, MinimumNeighborhood(fewest=100))
    assert ["reads nothing" in unstated.why for unstated in run.truth.unstated] == [True]
    with pytest.raises(AssertionError, match="cross_edges"):
        check_protocol(Boasting(hidden=4, rounds=1), graph)


@dataclasses.dataclass
class Merges(DefenseSession):
    size: int
    stated: tuple[Fact, ...] = ()

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        _, place, count = torch.unique_consecutive(center, return_inverse=True, return_counts=True)
        rank = torch.arange(len(center)) - (count.cumsum(0) - count)[place]
        groups = (count // self.size).clamp(min=1)
        within = torch.minimum(rank // self.size, groups[place] - 1)
        numbers: Tensor = (groups.cumsum(0) - groups)[place] + within
        return numbers

    def facts(self) -> tuple[Fact, ...]:
        return self.stated


@pytest.mark.parametrize(
    ("session", "lies"),
    [
        (Merges(2, (Merged(EDGES, 2),)), False),
        (Merges(3, (Merged(EDGES, 2),)), True),
        (Merges(2), True),
        (DefenseSession(), False),
    ],
)
def test_groups_of_neighbours(session: DefenseSession, lies: bool) -> None:
    channel = RecordingChannel(session, 3, derive(0))
    center = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2])
    channel.merge(center, torch.tensor([3, 5, 6, 8, 9, 2, 3, 4, 7]))
    assert caught(channel) == ({Edges} if lies else set())
