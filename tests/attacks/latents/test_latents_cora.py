"""Golden leak numbers of nFedGNN on real Cora, from recorded training: an attack that gets worse is a broken attack."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.attacks.latents.gradient_labels import GradientLabels
from fglaudit.attacks.latents.sparse_recovery import SparseRecovery
from fglaudit.attacks.latents.weight_replay import WeightReplay
from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, federate
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.testing import record
from fglaudit.view import Observer

GAT: dict[str, Any] = {"split": "gat", "learning_rate": 0.01, "dropout": 0.6, "smoothness": 10.0}


@pytest.fixture(scope="module")
def cora() -> FederatedGraph:
    try:
        graph = DatasetSpec(name="cora").load()
    except FglauditError as error:
        pytest.skip(f"Cora is not here: {error}")
    assert graph.train is not None and graph.val is not None and graph.test is not None
    users = [torch.tensor([k]) for k in range(graph.num_nodes)]
    return federate(graph, users, graph.train, graph.val, graph.test)


@pytest.mark.parametrize(
    ("attack", "settings", "exact_at_least", "proven_at_least"),
    [
        (SparseRecovery(), {**GAT, "rounds": 1}, 0.99, 0.99),
        (WeightReplay(degree=5, sweeps=30, restarts=0), {"rounds": 20, "smoothness": 0.1}, 0.1, 0.08),
    ],
)
def test_share_of_users_rebuilt_by_the_server(
    cora: FederatedGraph, attack: Attack, settings: dict[str, Any], exact_at_least: float, proven_at_least: float
) -> None:
    view = record(NFedGNN(**settings), cora).view(Observer((SERVER,), topology=True, auxiliary=0.1))
    result = attack.run(view, rng=derive(0, "attack"), device=torch.device("cpu"))
    assert isinstance(result, Reconstruction) and result.proven is not None
    exact = (result.rows == cora.x[result.nodes]).all(1)
    assert bool(exact[result.proven].all())
    assert exact.float().mean() >= exact_at_least
    assert result.proven.float().mean() >= proven_at_least


def test_gradients_on_the_wire_show_labels(cora: FederatedGraph) -> None:
    """CNFGNN's gradients name the classes of users that latents do not; nFedGNN's regulariser drowns them."""
    wire, device = Observer(wire=True, auxiliary=0.1), torch.device("cpu")
    shares = {}
    for protocol in (CNFGNN(rounds=15), NFedGNN(rounds=15)):
        view = record(protocol, cora).view(wire)
        result = GradientLabels().run(view, rng=derive(0, "attack"), device=device)
        assert isinstance(result, Inference)
        right = result.estimate.argmax(1) == cora.y[result.subjects]
        guess = propagate_labels(view, result.subjects).argmax(1) == cora.y[result.subjects]
        shares[type(protocol)] = float(right.float().mean()), float(guess.float().mean())
    assert shares[CNFGNN][0] > 0.55 > 0.35 > shares[CNFGNN][1]
    assert abs(shares[NFedGNN][0] - shares[NFedGNN][1]) < 0.02
