"""GFL-APPNP's long measurements: every printed figure has its case, settings are the paper's, lambda_max is what
Theorem 4.1 says."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fglaudit.datasets import CsbmTask, DatasetSpec
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.rng import derive

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.gfl_appnp")


def test_every_published_figure_has_a_case(bench: ModuleType) -> None:
    cases = list(bench.cases(2))
    assert len(cases) == len(set(cases))
    assert set(bench.PUBLISHED) <= {(case.dataset, case.method) for case in cases}
    for case in cases:
        bench.protocol(case), bench.spec(case, None)


def test_updates_do_not_depend_on_how_often_models_are_averaged(bench: ModuleType) -> None:
    for dataset, settings in bench.SETTINGS.items():
        for method in bench.METHODS[dataset]:
            protocol = bench.protocol(bench.Case(dataset, method, 0))
            if isinstance(protocol, GFLAPPNP) and (dataset, method) != ("csbm-snc", "v2"):
                assert protocol.rounds * protocol.local_steps == settings["updates"]
                assert protocol.learning_rate == settings["learning_rate"]


def test_lambda_max_is_the_largest_eigenvalue_of_the_product(bench: ModuleType) -> None:
    spec = DatasetSpec("csbm-sc", task=CsbmTask(nodes=20, samples=3, dimensions=2))
    graph = PartitionSpec("per-node").apply(spec.load(), spec, derive(0, "partition"))
    n = graph.num_nodes
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    laplacian = torch.diag(adjacency.sum(1)) - adjacency
    b = torch.eye(n, dtype=torch.float64) / n - torch.full((n, n), 1 / n**2, dtype=torch.float64)
    expected = torch.linalg.eigvals(b @ torch.linalg.pinv(laplacian)).real.max()
    assert bench.lambda_max(graph) == pytest.approx(float(expected), rel=1e-6)


def test_a_stopped_measurement_goes_on(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "METHODS", {"connectivity": ("degree 25",)})
    monkeypatch.setitem(bench.SETTINGS, "connectivity", {"updates": 20, "learning_rate": 0.5, "batch_size": 5})
    bench.run(tmp_path, None, 1)
    first = (tmp_path / "gfl_appnp.csv").read_text()
    bench.run(tmp_path, None, 2)
    second = (tmp_path / "gfl_appnp.csv").read_text()
    assert second.startswith(first) and len(second.splitlines()) == 3


def test_attacks_are_measured_at_the_papers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    attacks = importlib.import_module("bench.gfl_appnp_attacks")
    cases = list(attacks.cases())
    assert len(cases) == len(set(cases))
    case = attacks.Case("csbm-dnc", "full", 0.5, "jacobian-reading", "server", False, 0)
    assert case in cases
    read = attacks.measure(case, rounds=1, hidden=8)
    assert float(read["exact_rate"]) > 0.95 and float(read["right_node"]) == 1
    assert float(read["scale_error"]) < 1e-3 and float(read["false_claim_rate"]) == 0
    named = attacks.measure(case._replace(attack="label-reading"), rounds=1, hidden=8)
    assert 0 < float(named["label_accuracy"]) <= 1 and named["targets"] == "200"
