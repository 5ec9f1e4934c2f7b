"""The rows that clients hold and the edges they know, found a few clients and edges at a time."""

from __future__ import annotations

import pytest
import torch

from fglaudit.federated import neighborhood
from fglaudit.federated.neighborhood import HeldRows, KeptEdges
from fglaudit.testing import example_graph


@pytest.mark.parametrize(("tables", "part"), [(2**24, 2**22), (1, 2**22), (120, 7), (1, 1)])
@pytest.mark.parametrize("hops", [0, 1, 2])
def test_rows_and_edges_do_not_depend_on_how_many_are_taken(
    monkeypatch: pytest.MonkeyPatch, tables: int, part: int, hops: int
) -> None:
    monkeypatch.setattr(neighborhood, "TABLE_ENTRIES", tables)
    monkeypatch.setattr(neighborhood, "PART_EDGES", part)
    graph = example_graph(clients=5)
    edges = KeptEdges.of([graph.client(k) for k in range(5)], graph.degrees())
    pairs = list(zip(edges.receivers().tolist(), edges.source.tolist(), strict=True))
    rows = HeldRows.within(edges, 5, hops)
    away: dict[tuple[int, int], int] = {}
    for client, own in enumerate(graph.clients):
        reached = set(own.tolist())
        for hop in range(hops + 1):
            away |= {(client, node): hop for node in sorted(reached) if (client, node) not in away}
            reached |= {j for i, j in pairs if i in reached}
    expected = [(client, node, away[client, node]) for client, node in sorted(away)]
    assert list(zip(rows.client.tolist(), rows.node.tolist(), rows.distance.tolist(), strict=True)) == expected
    assert rows.splits.diff().tolist() == torch.bincount(rows.client, minlength=5).tolist()
    for reach, depth in ((0, None), (hops, None), (hops, 0), (0, 1)):
        known = [
            ((k, i), (k, j))
            for k in range(5)
            for i, j in pairs
            if (k, i) in away
            and (k, j) in away
            and (min(away[k, i], away[k, j]) <= reach or i == j)
            and (depth is None or away[k, i] <= depth)
        ]
        row, column = rows.known_edges(edges, reach, depth)
        found = [
            tuple((int(rows.client[r]), int(rows.node[r])) for r in both) for both in zip(row, column, strict=True)
        ]
        assert found == known


def test_rows_of_some_clients_are_numbered_from_zero() -> None:
    graph = example_graph(clients=5)
    edges = KeptEdges.of([graph.client(k) for k in range(5)], graph.degrees())
    rows = HeldRows.within(edges, 5, 1)
    some = rows.of_clients(2, 4)
    mine = (rows.client == 2) | (rows.client == 3)
    assert torch.equal(some.client, rows.client[mine] - 2) and torch.equal(some.node, rows.node[mine])
    assert torch.equal(some.distance, rows.distance[mine])
    assert some.splits.tolist() == [0, *torch.bincount(some.client).cumsum(0).tolist()]
