"""What clients send of their neighbours' rows, against sums over edges one by one, however the edges are cut up."""

from __future__ import annotations

import pytest
import torch

from fglaudit.federated import neighbor_sums
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.problem import gather_features
from fglaudit.testing import example_graph


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("block", [5, 64, 2**20])
@pytest.mark.parametrize("bucket", [1, 2**30])  # a sender at a time, or all of them
@pytest.mark.parametrize("precise", [0, 2**40])  # float32 or float64 accumulation
def test_sums_do_not_depend_on_blocks(
    monkeypatch: pytest.MonkeyPatch, counts: bool, block: int, bucket: int, precise: int
) -> None:
    for name, value in (("BLOCK_ENTRIES", block), ("BUCKET_BYTES", bucket), ("PRECISE_WORK", precise)):
        monkeypatch.setattr(neighbor_sums, name, value)
    graph = example_graph()
    clients = [graph.client(k) for k in range(graph.num_clients)]
    edges = KeptEdges.of(clients, graph.degrees())
    x = gather_features(clients, graph.num_nodes)
    expected: dict[tuple[int, int], torch.Tensor] = {}
    scale = (graph.degrees().double() + 1).rsqrt()
    for i, j in zip(edges.receivers().tolist(), edges.source.tolist(), strict=True):
        term = (1.0 if counts else scale[i] * scale[j]) * x[j].double()
        key = int(edges.owner[j]), i
        expected[key] = expected[key] + term if key in expected else term
    found = []
    for part in neighbor_sums.sender_sums(edges, x, graph.num_clients, counts=counts):
        assert part.splits[-1] == len(part.nodes) == len(part.sums)
        for place, sender in enumerate(part.senders.tolist()):
            for row in range(int(part.splits[place]), int(part.splits[place + 1])):
                found.append((sender, int(part.nodes[row])))
                assert torch.allclose(part.sums[row].double(), expected[found[-1]], atol=1e-6)
    assert found == sorted(expected)
