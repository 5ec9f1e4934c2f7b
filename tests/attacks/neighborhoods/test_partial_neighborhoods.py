"""FedGAT's neighbourhoods of which some rows, or the lengths of rows, do not come out."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from scored_runs import finding_of

from fglaudit.attacks.neighborhoods.gram_peeling import GramPeeling
from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.conformance.runs import example_graph
from fglaudit.finding import Status
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.rng import derive
from fglaudit.testing import CPU, record
from fglaudit.view import Observer

PROTOCOL = FedGAT(remote="matrices", rounds=1, heads=2, hidden=4, degree=8)
WIRE = ObserverSpec(("wire",))


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_a_neighbourhood_that_did_not_come_out_whole_proves_nothing_of_its_members(seed: int) -> None:
    """With few features many rows stay in the Gram matrix; those found may be anybody's in the neighbourhood."""
    run = record(PROTOCOL, example_graph(nodes=45, features=6, seed=seed))
    result = GramPeeling().run(run.view(Observer((), wire=True)), rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction) and result.proven is not None
    wrong = (result.rows != run.graph.x[result.nodes]).any(1)
    assert not bool((result.proven & (result.nodes >= 0) & wrong).any())


def test_who_knows_no_row_finds_none_in_noise() -> None:
    """The self-test on noise ended in an index out of bounds, and every row of the wire read `failed`."""
    assert finding_of(record(PROTOCOL, example_graph(nodes=45)), GramPeeling(), WIRE).status is Status.OK


def test_rows_without_their_length_are_no_silence() -> None:
    """FedGAT scales rows to norm at most 1: exact ones were asked for, and none of all directions found counted."""
    graph = example_graph(nodes=45)
    real = torch.randn(graph.x.shape, generator=derive(0, "rows")) * 2
    run = record(PROTOCOL, dataclasses.replace(graph, x=real, features=FeatureKind.REAL))
    finding = finding_of(run, JointDiagonalisation(), WIRE)
    assert finding.metric == "cosine" and finding.exact_rate == 0
    assert finding.value is not None and finding.value > 0.99
