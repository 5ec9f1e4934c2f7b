"""FedGAT on hard or bad input: an answer, a warning or an error that says what to do."""

from __future__ import annotations

import dataclasses
import math
import warnings

import pytest
import torch
from fedgat_runs import CPU, PROTOCOLS, SMALL, mixed_graph, quiet, recording, train

from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.errors import FglauditError
from fglaudit.graph import Graph, canonical_edges, federate
from fglaudit.nn.gat import layer_weights
from fglaudit.nn.weights import unflatten
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.rng import derive
from fglaudit.testing import record


def test_nodes_without_neighbours_equal_rows_zero_rows_and_empty_clients() -> None:
    edges = canonical_edges(torch.tensor([[0, 0, 1, 0], [1, 2, 2, 1]]), 6)
    x = torch.tensor([[0, 0, 0], [1, 0, 1], [1, 0, 1], [0, 1.0, 0], [1, 1, 0], [0, 0, 0]])
    every = torch.ones(6, dtype=torch.bool)
    clients = [torch.tensor([0, 3]), torch.tensor([1, 2, 4, 5]), torch.empty(0, dtype=torch.long)]
    graph = federate(Graph(x, torch.tensor([0, 1, 0, 1, 1, 0]), edges, "hard"), clients, every, every, every)
    for protocol in PROTOCOLS:
        for channel in (quiet(graph), recording(graph)):
            trained = protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)
            assert all(bool(torch.isfinite(w).all()) for w in trained.weights.values())
            assert trained.accuracy[:, 2].isnan().all() and not trained.accuracy_global.isnan().any()


def test_scores_outside_the_domain_are_announced() -> None:
    graph = mixed_graph()
    for path in ("moments", "matrices"):
        protocol = FedGAT(domain=0.05, path=path, **SMALL)
        with pytest.warns(UserWarning, match="of the edge scores left the series' domain"):
            trained = train(protocol, graph)
        assert len(trained.notes) == 1 and "raise domain" in trained.notes[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train(FedGAT(**SMALL), graph).notes == ()
        assert train(FedGAT(domain=50.0, **SMALL | {"bounds": "none"}), graph).notes == ()


def test_both_paths_measure_the_same_share_outside() -> None:
    graph, shares = mixed_graph(), []
    for path in ("moments", "matrices"):
        for variant in ("matrix", "vector"):
            protocol = FedGAT(domain=0.3, path=path, variant=variant, **SMALL)
            training, initial, _ = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
            assert training.outside is not None
            weights = unflatten(initial.expand(graph.num_clients, -1), training.layout)
            shares.append(float(training.outside(layer_weights(weights)[0])))
    assert 0.02 < shares[0] < 0.98
    assert shares == pytest.approx([shares[0]] * 4, abs=1e-6)


def test_the_fast_path_is_refused_where_the_matrices_are_recorded() -> None:
    graph = mixed_graph()
    with pytest.raises(FglauditError, match="use path 'auto'"):
        train(FedGAT(path="moments", **SMALL), graph, recording(graph))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"degree": 0}, "degree >= 1; got 0"),
        ({"domain": 0.0}, "finite R > 0; got 0"),
        ({"domain": math.inf}, "must be finite"),
        ({"heads": 0}, "heads >= 1; got 0"),
        ({"variant": "matrx"}, "matrix"),
        ({"remote": "none"}, "embeddings"),
        ({"path": "fast"}, "moments"),
        ({"bounds": "some"}, "first-layer"),
        ({"choice": "best"}, "validation"),
        ({"proximal": -1.0}, "proximal >= 0; got -1"),
    ],
)
def test_bad_hyperparameters(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        FedGAT(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", [FedGAT(**SMALL), GAT(**SMALL), DistGAT(**SMALL)], ids=lambda p: p.name)
def test_graphs_that_do_not_fit(protocol: FedGAT | GAT | DistGAT) -> None:
    graph = mixed_graph()
    x = graph.x.clone()
    for value in (math.nan, math.inf):
        x[7, 2] = value
        with pytest.raises(FglauditError, match="finite features; row 7"):
            train(protocol, dataclasses.replace(graph, x=x))
    row, column = graph.edge_index[:, 0].tolist()
    both = torch.tensor([[row, column], [column, row]])
    with pytest.raises(FglauditError, match=f"edge {row} - {column} more than once"):
        train(protocol, dataclasses.replace(graph, edge_index=torch.cat([graph.edge_index, both], 1)))
    with pytest.raises(FglauditError, match="one at node 3"):
        train(
            protocol, dataclasses.replace(graph, edge_index=torch.cat([graph.edge_index, torch.tensor([[3], [3]])], 1))
        )


def test_noise_that_drives_scores_out_of_the_domain_is_announced() -> None:
    graph = mixed_graph(torch.float32)
    for variant in ("matrix", "vector"):
        protocol = FedGAT(variant=variant, **SMALL)
        with pytest.warns(UserWarning, match="because of the noise on the messages"):
            run = record(protocol, graph, Gaussian(epsilon=1.0, on=protocol.masked.__name__))
        assert len(run.trained.notes) == 1
