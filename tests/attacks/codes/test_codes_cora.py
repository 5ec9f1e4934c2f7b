"""Golden leak numbers of public codes and of private reports on real Cora, 10 clients drawn evenly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fglaudit.adversary.reported_classes import seen_reports
from fglaudit.attacks.codes.code_edges import CodeEdges
from fglaudit.attacks.codes.report_rows import ReportRows
from fglaudit.attacks.updates.code_gradients import code_gradients
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.noise.k_ary_response import KAryResponse
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Inference, Reconstruction
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.quantities.rows.class_alone import class_alone
from fglaudit.rng import derive
from fglaudit.testing import CPU, record
from fglaudit.view import Observer


@pytest.fixture(scope="module")
def cora() -> FederatedGraph:
    spec = DatasetSpec(name="cora")
    try:
        graph = spec.load()
    except FglauditError as error:
        pytest.skip(f"Cora is not here: {error}")
    return PartitionSpec("dirichlet", clients=10, beta=10000.0).apply(graph, spec, derive(0, "partition"))


@pytest.mark.parametrize(("party", "share"), [(SERVER, 0.99), (0, 0.45)])
def test_share_of_the_edges_between_others_that_codes_show_exactly(
    cora: FederatedGraph, party: int, share: float
) -> None:
    view = record(StructureOnly(hops=(2,), rounds=1), cora).view(Observer(parties=(party,)))
    found = CodeEdges().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    sure = found.subjects[found.estimate > 1].sort(1).values
    codes = torch.unique(sure[:, 0] * cora.num_nodes + sure[:, 1])
    row, column = cora.edge_index[:, cora.edge_index[0] < cora.edge_index[1]]
    edges, owner = row * cora.num_nodes + column, cora.owner()
    foreign = (owner[row] != party) & (owner[column] != party)
    assert bool(torch.isin(codes, edges).all())  # none is wrong
    assert torch.isin(edges[foreign], codes).float().mean() >= share


def f1(rows: Tensor, truth: Tensor) -> float:
    """Return the mean F1 of the non-zero entries of ``rows`` [R, F]."""
    hits = ((rows != 0) & (truth != 0)).sum(1)
    return float((2 * hits / ((rows != 0).sum(1) + (truth != 0).sum(1)).clamp(min=1)).mean().item())


def test_features_from_reports_are_explained_by_the_class_alone(cora: FederatedGraph) -> None:
    """No row is exact, and F1 is not above that of a guess that knows the predicted class itself, without noise."""
    protocol = PrivateReports(hops=(2,), width=0, rounds=1)
    observer = Observer(parties=(SERVER,), auxiliary=0.1)
    found, said = {}, {}
    for name, defense in (("clear", None), ("random", KAryResponse(epsilon=4.0))):
        view = record(protocol, cora, defense).view(observer)
        result = ReportRows().run(view, rng=derive(0, "attack"), device=CPU)
        assert isinstance(result, Reconstruction)
        strangers = ~torch.isin(result.nodes, view.auxiliary.nodes)
        nodes, rows = result.nodes[strangers], result.rows[strangers]
        assert not bool((rows == cora.x[nodes]).all(1).any())
        found[name], said[name] = f1(rows, cora.x[nodes]), seen_reports(view)
    told = class_alone(view, said["clear"].reported, nodes)  # of every node, before the response
    assert told is not None
    control = f1(told.rows, cora.x[nodes])
    assert found["random"] <= found["clear"] + 1e-3
    assert found["clear"] <= control + 0.01


@pytest.mark.parametrize(("party", "found_at_least"), [(SERVER, 135), (0, 120)])
def test_who_trains_on_which_label_shows_in_models(cora: FederatedGraph, party: int, found_at_least: int) -> None:
    """Of 140 training nodes by the server, and by one client, which sees the mean of all models and takes its own off,
    of the 127 of others; what is named beside them are few, and no label of a training node is wrong."""
    view = record(StructureOnly(), cora).view(Observer(parties=(party,), topology=True))
    nodes, labels = code_gradients(view, CPU).labels()
    trained = torch.zeros(cora.num_nodes, dtype=torch.bool)
    for ids, mask in zip(cora.clients, cora.train, strict=True):
        trained[ids[mask]] = True
    own = torch.isin(nodes, cora.clients[party]) if party != SERVER else torch.zeros(len(nodes), dtype=torch.bool)
    assert int(trained[nodes[~own]].sum()) >= found_at_least
    assert int((~trained[nodes]).sum()) <= 30
    assert (labels == cora.y[nodes])[trained[nodes]].all()
