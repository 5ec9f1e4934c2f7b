"""Label propagation, the guess of every attack on labels."""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.graph import canonical_edges
from fglaudit.payloads import SERVER
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.testing import example_graph, record
from fglaudit.view import Auxiliary, Observer, View


def line_of_thirteen() -> View:
    """Return what a server sees of a line of nodes 0 to 12; it knows that 0 is of class 1, and 20 to 25, which have no
    edges, of class 0."""
    graph = example_graph(nodes=30)
    edges = canonical_edges(torch.stack([torch.arange(12), torch.arange(1, 13)]), 30)
    graph = dataclasses.replace(graph, edge_index=edges)
    view = record(StructureOnly(rounds=1, hops=(1,)), graph).view(Observer(parties=(SERVER,), topology=True))
    nodes = torch.tensor([0, *range(20, 26)])
    known = Auxiliary(nodes, torch.zeros(len(nodes), view.public.num_features), torch.tensor([1] + [0] * 6))
    return dataclasses.replace(view, auxiliary=known)


def test_frequent_classes_do_not_outshout_the_one_label_that_reaches_a_node() -> None:
    found = propagate_labels(line_of_thirteen(), torch.arange(20))
    assert found[1:7].argmax(1).eq(1).all()
    assert (found[1:12, 1] > found[2:13, 1]).all()  # ever less sure
    torch.testing.assert_close(found.sum(1), torch.ones(20, dtype=torch.double))
    torch.testing.assert_close(found[19], torch.tensor([7, 2, 1]).double() / 10)  # nothing reaches it


def test_evidence_is_propagated_and_counts_alone_where_nothing_else_does() -> None:
    view, seen = line_of_thirteen(), torch.zeros(30, 3, dtype=torch.double)
    seen[12] = seen[18] = torch.tensor([0.0, 0.0, 1.0])
    seen[19] = torch.tensor([0.1, 0.7, 0.2])
    found = propagate_labels(view, torch.arange(30), seen)
    assert found[8:13].argmax(1).eq(2).all() and found[1:5].argmax(1).eq(1).all()
    torch.testing.assert_close(found[18], torch.tensor([0.0, 0.0, 1.0]).double())
    torch.testing.assert_close(found[19], torch.tensor([0.07, 0.14, 0.02]).double() / 0.23)


def test_how_far_neighbours_are_believed_falls_with_what_a_node_shows_itself() -> None:
    """Of 10 to 9 where its best class has odds of 9: redone by hand for the end of the line, beside a known node."""
    view, seen = line_of_thirteen(), torch.zeros(30, 3, dtype=torch.double)
    nodes = torch.cat([view.auxiliary.nodes, torch.tensor([11])])
    known = Auxiliary(nodes, torch.zeros(len(nodes), view.public.num_features), torch.tensor([1] + [0] * 6 + [1]))
    seen[12] = torch.tensor([0.05, 0.05, 0.9])
    (found,) = propagate_labels(dataclasses.replace(view, auxiliary=known), torch.tensor([12]), seen)
    neighbor, own = torch.tensor([0.0, 1.0, 0.0]).double(), seen[12]
    prior = torch.tensor([7, 3, 1]).double() / 11
    torch.testing.assert_close(found, (10 / 19 * neighbor + 9 / 19 * own + 0.05 * prior) / 1.05)
