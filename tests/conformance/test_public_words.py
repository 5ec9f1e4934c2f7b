"""What a protocol states is the same whatever rows and labels are, and no more losses than there are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from bench.redteam.protocol_lies import FewerPasses, GainByRows
from fglaudit.conformance.public_words import overstated_losses, told_by_words
from fglaudit.graph import FederatedGraph
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.structure import Models, Structure
from fglaudit.testing import check_protocol, example_graph

GRAPH = example_graph()


@dataclass(frozen=True)
class StructureByLabels(FedGCN):
    """States as its models' first feature how many nodes have the first class."""

    def structure(self, graph: FederatedGraph) -> Structure:
        return super().structure(graph).replace(Models, features_from=int((graph.y[:10] == 0).sum()))


def test_a_gain_made_of_rows_is_told() -> None:
    assert told_by_words(GainByRows(hops=1), GRAPH) == "with other rows `releases` states something else"
    with pytest.raises(AssertionError, match="public, and must not be made of rows or labels"):
        check_protocol(GainByRows(hops=1, rounds=1), GRAPH)


def test_a_structure_made_of_labels_is_told() -> None:
    assert told_by_words(StructureByLabels(hops=1), GRAPH) == "with other labels `structure` states something else"


def test_no_more_losses_than_training_nodes() -> None:
    assert "`examples` state 1 losses of a training node, and 18 of the 6" in overstated_losses(
        FewerPasses(hops=0, rounds=1, local_steps=3), GRAPH
    )


@pytest.mark.parametrize("protocol", [FedGCN(hops=1), FedGCN(hops=0)])
def test_honest_words_pass(protocol: FedGCN) -> None:
    graph = dataclasses.replace(GRAPH, x=GRAPH.x + 0.1)
    assert told_by_words(protocol, graph) == overstated_losses(protocol, graph) == ""
