"""Labels from gradients of hidden states: training neighbours are named, others are left to label propagation."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.attacks.boundaries.boundary_labels import BoundaryLabels
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Inference
from fglaudit.payloads import HiddenGradients, HiddenStates, ModelUpdate
from fglaudit.protocols.distributed_gcn.bds_gcn import BDSGCN
from fglaudit.protocols.distributed_gcn.distributed_gcn import DistributedGCN
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View

CLIENT = Observer(parties=(0,))


def attacked(view: View) -> Inference:
    found = BoundaryLabels().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    return found


def named(graph: FederatedGraph, view: View) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the nodes that the attack names against label propagation, and the labels that it gives them."""
    found = attacked(view)
    told = found.estimate.amax(1) >= 2
    return found.subjects[told], found.estimate[told].argmax(1)


@pytest.mark.parametrize("protocol", [DistributedGCN(rounds=10), BDSGCN(rounds=10)])
def test_neighbours_in_training_are_named(protocol: DistributedGCN) -> None:
    graph = example_graph(nodes=120)
    view, owner = record(protocol, graph).view(CLIENT), graph.owner()
    nodes, labels = named(graph, view)
    trained = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for ids, mask in zip(graph.clients, graph.train, strict=True):
        trained[ids[mask]] = True
    reached = torch.zeros_like(trained)
    reached[graph.edge_index[1][owner[graph.edge_index[0]] == 0]] = True
    wanted = (reached & trained & (owner != 0)).nonzero().squeeze(1)
    found = torch.isin(wanted, nodes)
    assert len(wanted) >= 5 and float(found.float().mean()) > 0.8
    right = torch.isin(nodes, wanted)
    assert torch.equal(labels[right], graph.y[nodes[right]])


def test_without_gradients_nothing_is_named() -> None:
    """Gradients of noise alone: no node's label depends on hidden states or models."""
    graph = example_graph(nodes=120)
    view = record(DistributedGCN(rounds=3), graph).view(CLIENT)
    batches = []
    for batch in view.messages.of(HiddenGradients):
        assert isinstance(batch.payload, HiddenGradients)
        silent = HiddenGradients(batch.payload.nodes, torch.zeros_like(batch.payload.values))
        batches.append(dataclasses.replace(batch, payload=silent))
    others = [*view.messages.of(HiddenStates), *view.messages.of(ModelUpdate)]
    found = attacked(dataclasses.replace(view, messages=MemoryMessages((*batches, *others))))
    torch.testing.assert_close(found.estimate, propagate_labels(view, found.subjects).float())


def test_self_test_and_refusals() -> None:
    graph = example_graph()
    run, attack = record(DistributedGCN(rounds=3), graph), BoundaryLabels()
    for observer in (CLIENT, Observer(parties=(0, 2), topology=True), Observer(parties=(1,), degrees=False)):
        assert planted_flaw(attack, run.view(observer), derive(0, "self-test"), CPU) is None
    for observer, why in ((Observer(wire=True), "no edge"), (Observer(parties=(-1,)), "no gradient")):
        refused = attack.unsupported(run.view(observer))
        assert refused is not None and why in refused
    narrow = record(DistributedGCN(rounds=2, hidden=2), graph).view(CLIENT)
    refused = attack.unsupported(narrow)
    assert refused is not None and "2 hidden units" in refused
