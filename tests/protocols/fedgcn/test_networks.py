"""The networks of FedGCN's clients against torch-geometric's layers and torch's batch normalisation."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from fedgcn_runs import CPU, PlainChannel
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GCNConv, SimpleConv
from torch_geometric.utils import add_self_loops

from fglaudit.context import Examples
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.nn.gcn import batch_norm, logits, loss
from fglaudit.nn.networks import NETWORKS, NetworkName, network
from fglaudit.nn.weights import flatten, gcn_layout, glorot, unflatten
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.rng import derive
from fglaudit.structure import Convolutions
from fglaudit.testing import example_graph


def one_client() -> FederatedGraph:
    """All nodes at one client, every third of which trains and every other of which tests."""
    graph = example_graph(nodes=60, clients=3)
    nodes = torch.arange(graph.num_nodes)
    train, test = nodes % 3 == 0, nodes % 2 == 1
    return dataclasses.replace(
        graph, clients=(nodes,), train=(train & ~test,), val=(torch.zeros_like(train),), test=(test,)
    )


def propagation(graph: FederatedGraph, *, means: bool) -> Tensor:
    """Return the matrix [N, N] by which torch-geometric propagates over closed neighbourhoods."""
    each = torch.eye(graph.num_nodes)
    if means:
        found: Tensor = SimpleConv(aggr="mean")(each, add_self_loops(graph.edge_index, num_nodes=graph.num_nodes)[0])
        return found
    layer = GCNConv(graph.num_nodes, graph.num_nodes, bias=False)
    layer.lin.weight = torch.nn.Parameter(each)
    propagated: Tensor = layer(each, graph.edge_index)
    return propagated.detach()


def theirs(graph: FederatedGraph, weights: dict[str, Tensor], name: NetworkName) -> Tensor:
    """Return the logits of all nodes [N, C] with one model's ``weights``."""
    chosen, hidden = network(name), graph.x.float()
    matrix = propagation(graph, means=chosen.means)
    layers = [weight[0] for key, weight in weights.items() if key.endswith("weight")]
    norms = [weight[0] for key, weight in weights.items() if key.endswith("norm")]
    for index, layer in enumerate(layers):
        if index:
            if chosen.batch_norm:
                scale, shift = norms[index - 1]
                hidden = functional.batch_norm(hidden, None, None, scale, shift, training=True)
            hidden = hidden.relu()
        hidden = matrix @ (hidden @ layer)
    return hidden


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_those_of_torch_geometric(name: NetworkName, layers: int) -> None:
    graph = one_client()
    counts: Weights = "counts" if name == "sage" else "normalised"
    protocol = FedGCN(hops=layers, layers=layers, network=name, aggregate=counts)
    problem, inputs = protocol.pretrain(graph, PlainChannel(), CPU)
    train, test = problem.fields(inputs, layers)
    layout = protocol.layout(graph)
    model = glorot(layout, derive(1)) + 0.1 * torch.rand(sum(a * b for a, b in layout.values()), generator=derive(2))
    mine, reference = (model.unsqueeze(0).clone().requires_grad_() for _ in range(2))
    expected = theirs(graph, unflatten(reference, layout), name)
    assert torch.allclose(logits(test, unflatten(mine, layout))[test.mask], expected[graph.test[0]], atol=1e-5)
    outputs = logits(train, unflatten(mine, layout))
    (gradient,) = torch.autograd.grad(loss(train, outputs), mine)
    of_train = functional.cross_entropy(expected[graph.train[0]], graph.y[graph.train[0]])
    (wanted,) = torch.autograd.grad(of_train, reference)
    assert torch.allclose(gradient, wanted, atol=1e-5) and float(wanted.abs().max()) > 1e-3


def test_clients_are_normalised_by_their_own_rows() -> None:
    hidden = torch.randn(2, 5, 3, generator=derive(0))
    present = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    scale_shift = torch.randn(2, 2, 3, generator=derive(1))
    found = batch_norm(hidden, present, scale_shift)
    for client, rows in enumerate((hidden[0], hidden[1, :3])):
        scale, shift = scale_shift[client]
        expected = functional.batch_norm(rows, None, None, scale, shift, training=True)
        assert torch.allclose(found[client][: len(rows)], expected, atol=1e-5)


def test_scales_begin_at_one_and_are_sent_with_the_weights() -> None:
    layout = gcn_layout(5, 4, 3, 3, normalised=True)
    assert list(layout) == ["layers.0.weight", "layers.0.norm", "layers.1.weight", "layers.1.norm", "layers.2.weight"]
    weights = unflatten(glorot(layout, derive(0)).unsqueeze(0), layout)
    assert all(weights[name].tolist() == [[[1.0] * 4, [0.0] * 4]] for name in layout if name.endswith("norm"))
    bare = unflatten(glorot(gcn_layout(5, 4, 3, 3), derive(0)).unsqueeze(0), gcn_layout(5, 4, 3, 3))
    assert torch.equal(flatten(bare), flatten({name: weights[name] for name in bare}))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("hops", [0, 1, 2])
def test_every_network_learns(name: str, hops: int) -> None:
    graph = example_graph(nodes=200, clients=4)
    aggregate = "counts" if name == "sage" else "normalised"
    steps = {"rounds": 60, "optimizer": "adam", "learning_rate": 0.02}
    federated = FedGCN(hops=hops, network=name, aggregate=aggregate, **steps)  # type: ignore[arg-type]
    central = GCN(network=name, **steps)  # type: ignore[arg-type]
    most = float(torch.bincount(graph.y).max()) / graph.num_nodes
    for protocol in (federated, central):
        trained = protocol.train(graph, PlainChannel(), rng=derive(0, "train"), device=CPU)
        assert trained.whole_test_set > most + 0.1


def test_what_is_not_so_is_not_stated() -> None:
    graph = example_graph()
    for name in NETWORKS:
        protocol = FedGCN(hops=0, network=name)
        assert (protocol.structure(graph).get(Convolutions) is not None) == (name == "gcn")
        single = all(isinstance(each.examples(graph), Examples) for each in (protocol, GCN(network=name)))
        assert single == (name != "gcn-batchnorm")


def test_wrong_networks_are_refused() -> None:
    for kind in (FedGCN, GCN):
        with pytest.raises(FglauditError, match="gcn-batchnorm"):
            kind(network="gcn-batchnrom")  # type: ignore[arg-type]
    with pytest.raises(FglauditError, match="aggregate: counts"):
        FedGCN(hops=1, network="sage")
    FedGCN(hops=0, network="sage")
