"""Real-valued rows from the directions that several units' weights move along."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scored_runs import finding_of

from fglaudit.attacks.updates.repeated_rows import repeated_rows
from fglaudit.attacks.updates.update_inversion import UpdateInversion
from fglaudit.finding import Status
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer


def measured(nodes: int, clients: int, features: int = 30) -> FederatedGraph:
    """Return a graph of real-valued rows whose clients train on one node each."""
    made = example_graph(nodes=nodes, clients=clients, features=features)
    few = tuple(torch.arange(len(nodes)) == 0 for nodes in made.clients)
    rest = tuple(torch.zeros_like(mask) for mask in few)
    x = torch.randn(nodes, features, generator=derive(0, "real"))
    return replace(made, x=x, train=few, val=rest, test=tuple(~mask for mask in few), features=FeatureKind.REAL)


def users() -> FederatedGraph:
    """Return a graph of real-valued rows of which every node is a client that trains."""
    made = measured(24, 24)
    each, none = tuple(torch.ones(24, 1, dtype=torch.bool)), tuple(torch.zeros(24, 1, dtype=torch.bool))
    return replace(made, clients=tuple(torch.arange(24).unsqueeze(1)), train=each, val=none, test=each)


def test_two_rows_worked_by_hand() -> None:
    """Units 0 and 1 see the first row alone, 2 and 3 the second, 4 both; the units' weights tell the signs."""
    rows = torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]], dtype=torch.double)
    gradient = torch.tensor([[2.0, -1.0, 0.0, 0.0, 1.0], [0.0, 0.0, -3.0, -0.5, 1.0]], dtype=torch.double)
    weights = torch.stack([rows[0], rows[0], rows[1], rows[1], rows.sum(0)], 1)
    found = repeated_rows(-rows.T @ gradient, weights, 5, 1e-9)
    expected = rows / rows.norm(dim=1, keepdim=True)
    assert torch.allclose(found[found[:, 0].argsort(descending=True)], expected, atol=1e-6)
    alone = repeated_rows(-rows.T @ gradient[:, 2:3], weights[:, 2:3], 1, 1e-9)
    assert len(alone) == 0  # a direction that comes once may be a sum
    assert len(repeated_rows(1e-9 * torch.randn(3, 5, generator=derive(0, "noise")).double(), weights, 5, 1e-9)) == 0


@pytest.mark.parametrize(
    ("protocol", "graph"),
    [
        (FedMLP(rounds=3), users()),
        (FedGCN(hops=1, layers=2, hidden=32, rounds=4, dropout=0.5), measured(40, 5)),
    ],
    ids=["perceptrons", "sums"],
)
def test_a_server_reads_real_valued_rows_off_models(protocol: FederatedProtocol, graph: FederatedGraph) -> None:
    found = finding_of(record(protocol, graph), UpdateInversion(), ObserverSpec(("server",)))
    assert found.status is Status.OK, found.reason
    assert found.value is not None and found.value >= 0.5 and found.control == 0


def test_one_layer_does_not_tell_a_row_from_its_opposite() -> None:
    view = record(FedGCN(hops=1, layers=1, rounds=1), measured(40, 5)).view(Observer(parties=(SERVER,)))
    assert "no layer" in str(UpdateInversion().unsupported(view))
