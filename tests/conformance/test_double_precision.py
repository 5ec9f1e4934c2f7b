"""Features in double precision are computed with in single, as weights are: the same training comes of both."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate
from fglaudit.interfaces import FederatedProtocol
from fglaudit.protocols.baselines.appnp import APPNP
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.baselines.graphsage import GraphSAGE
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.testing import example_graph, record


def node_per_client() -> FederatedGraph:
    """A ring of 30 nodes, each of which is a client of its own."""
    example, nodes = example_graph(), torch.arange(30)
    ring = canonical_edges(torch.stack([nodes, nodes.roll(1)]), len(nodes))
    masks = [nodes % 3 == part for part in range(3)]
    return federate(Graph(example.x[:30], example.y[:30], ring, "ring"), [nodes[k : k + 1] for k in range(30)], *masks)


@pytest.mark.parametrize("protocol", [APPNP(rounds=2), GraphSAGE(rounds=2), FedMLP(rounds=2), GFLAPPNP(rounds=2)])
def test_a_graph_in_double_precision_trains_as_in_single(protocol: FederatedProtocol) -> None:
    graph = node_per_client() if isinstance(protocol, FedMLP | GFLAPPNP) else example_graph()
    double = dataclasses.replace(graph, x=graph.x.double())
    single, other = (record(protocol, given).trained for given in (graph, double))
    assert torch.equal(single.accuracy_global, other.accuracy_global)
