"""Rows of ``fglaudit reproduce``: what is printed, and what they train: protocols, settings of text and code, seeds."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner
from user_graphs import user_graph

from fglaudit import registry
from fglaudit.cli import app
from fglaudit.datasets import CsbmTask, DatasetSpec
from fglaudit.datasets.csbm_tasks import PUBLISHED
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.federated.subgraph_protocol import SubgraphProtocol
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol, Trained
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.baselines.fedper_sage import FedPerSage
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedpub.fedpub import FedPub
from fglaudit.protocols.fedsage.fedsage import FedSage
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.reproduce.authors_code.fedgt_baselines import PublishedFedPer
from fglaudit.reproduce.measuring import NO_TRAINING, measure, protocol_of, rows_of, seeds_of, table_rows
from fglaudit.reproduce.papers import (
    data_tables,
    fedgt,
    fedgt_methods,
    fedgt_rows,
    gfl_appnp,
    message_sizes,
    nfedgnn,
    openfgl,
    unprinted,
)
from fglaudit.reproduce.published import AT_THEIR_RATE, BY_THEIR_CODE, FEW_HIDDEN, TITLES, all_published
from fglaudit.reproduce.run import reproduce
from fglaudit.reproduce.trainings import Measured, Training
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.wire.channel import RecordingChannel

TARGETS = Path(__file__).parents[3] / "shared" / "targets" / "paper_results.csv"


@pytest.mark.skipif(not TARGETS.is_file(), reason="the papers' figures as read from their text are not here")
def test_no_printed_figure_was_mistyped() -> None:
    with TARGETS.open(newline="") as file:
        printed = [row for row in csv.DictReader(file) if row["metric"] not in ("he-scheme", "he-security-level")]
    printed = [row for row in printed if row["metric"] != "accuracy-average"]
    ours = all_published()
    assert [float(row["mean"]) for row in printed] == [row.mean for row in ours]
    assert [row["method"] for row in printed] == [row.method for row in ours]


@pytest.mark.skipif(not TARGETS.is_file(), reason="the papers' figures as read from their text are not here")
def test_every_printed_method_is_a_protocol_or_trains_nothing() -> None:
    with TARGETS.open(newline="") as file:
        printed = {(row["paper"], row["method"]) for row in csv.DictReader(file)}
    mapped: dict[tuple[str, str], set[str]] = {}
    for row in all_published():
        found = protocol_of(row)
        name = type(found).name if isinstance(found, FederatedProtocol) else found
        mapped.setdefault((row.table.rpartition("-")[0], row.method), set()).add(name)
    assert printed == set(mapped)
    nothing = {method for (_, method), names in mapped.items() if names == {NO_TRAINING}}
    assert nothing == {"", "CKKS", "CKKS (Boolean packing)", "plaintext (bool)", "plaintext (long and double)"}
    trained = {name for (_, method), names in mapped.items() if method not in nothing for name in names}
    assert trained <= set(registry.names("protocol"))


class ReachedError(Exception):
    """A row got as far as its training."""


def test_every_row_names_a_training_or_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise ReachedError

    for module in ("fedgcn", "fedgat", "fedgt", "fedgt_costs", "nfedgnn", "gfl_appnp", "openfgl"):
        monkeypatch.setattr(f"fglaudit.reproduce.papers.{module}.trained", stop)
    for name in (
        "nfedgnn.validated",
        "fedgt_similarity.label_similarity",
        "fedgat.channel_of",
        "fedgt_costs.preprocessing",
        "gfl_appnp.lambda_max",
    ):
        monkeypatch.setattr(f"fglaudit.reproduce.papers.{name}", stop)
    monkeypatch.setattr(PartitionSpec, "apply", lambda *_: None)
    monkeypatch.setattr(DatasetSpec, "load", lambda *_: None)
    elsewhere = (
        *data_tables.COUNTS,
        *data_tables.PARTITIONS,
        *message_sizes.METRICS,
        "label-rate",
        *fedgt_rows.BUDGETS,
    )
    trained, reasons = 0, set()
    for row in (row for table in TITLES for row in table_rows(table) if row.metric not in elsewhere):
        try:
            found = measure(row, 0, "missing")
        except ReachedError:
            trained += 1
            continue
        assert isinstance(found, str) and len(found) > 10
        reasons.add(found)
    assert trained > 400 and reasons
    assert not any("Error" in reason for reason in reasons)


def test_a_setting_changes_fields() -> None:
    fields = {row.setting: protocol_of(row) for row in rows_of("fedgat-figure5")}
    assert {p.degree for p in fields.values() if isinstance(p, FedGAT)} == {8, 12, 16, 24, 32}
    assert unprinted.fields("beta=1, layers=3, tau=0.5") == {"layers": 3, "tau": 0.5}


def test_updates_do_not_depend_on_how_often_models_are_averaged() -> None:
    for row in rows_of("gfl-appnp-table2"):
        protocol = gfl_appnp.protocol(row)
        if isinstance(protocol, GFLAPPNP) and (row.dataset, protocol.variant) != ("csbm-snc", "v2"):
            assert protocol.rounds * protocol.local_steps == gfl_appnp.SETTINGS[row.dataset]["updates"]
    row = next(row for row in rows_of("gfl-appnp-table2") if row.method == "GFL-APPNP-V2 I=10")
    protocol = gfl_appnp.protocol(row)
    assert isinstance(protocol, GFLAPPNP) and protocol.variant == "v2" and protocol.num_rounds == 300


def test_rows_as_published_have_the_authors_graphs_or_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Training] = []

    def kept(training: Training, seed: int, *, device: torch.device) -> None:
        asked.append(training)
        raise ReachedError

    monkeypatch.setattr(gfl_appnp, "trained", kept)
    for row in (row for row in rows_of("gfl-appnp-table2") if row.method.endswith(BY_THEIR_CODE)):
        with pytest.raises(ReachedError):
            gfl_appnp.figure(row, 3, None)
    names = [training.dataset.name for training in asked]
    assert set(names) == {"subcora-published", *PUBLISHED} and names.count("csbm-sc") == 2
    assert all((t.dataset.task == CsbmTask(published=True)) == t.dataset.name.startswith("csbm") for t in asked)
    assert all(t.protocol.source == "code" for t in asked if isinstance(t.protocol, GFLAPPNP))
    rates = {
        t.protocol.variant: t.protocol.learning_rate
        for t in asked
        if isinstance(t.protocol, GFLAPPNP) and t.dataset.name == "csbm-sc"
    }
    assert rates == {"v1": 0.1, "v2": 0.2}


def test_lambda_max_is_the_largest_eigenvalue_of_the_product() -> None:
    spec = DatasetSpec("csbm-sc", task=CsbmTask(nodes=20, samples=3, dimensions=2))
    graph = PartitionSpec("per-node").apply(spec.load(), spec, derive(0, "partition"))
    n = graph.num_nodes
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    laplacian = torch.diag(adjacency.sum(1)) - adjacency
    b = torch.eye(n, dtype=torch.float64) / n - torch.full((n, n), 1 / n**2, dtype=torch.float64)
    expected = torch.linalg.eigvals(b @ torch.linalg.pinv(laplacian)).real.max()
    assert gfl_appnp.lambda_max(graph) == pytest.approx(float(expected), rel=1e-6)


def test_nfedgnn_chooses_lambda_on_validation_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in rows_of("nfedgnn-figure4") if row.method == "nFedGNN-GCN")
    row = replace(row, setting="per-node, round=2")
    graph = user_graph(nodes=60)
    monkeypatch.setattr(PartitionSpec, "apply", lambda *_: graph)
    monkeypatch.setattr(DatasetSpec, "load", lambda *_: None)
    monkeypatch.setattr(nfedgnn, "ROUNDS", 2)
    tried: list[tuple[float, float]] = []
    validated = nfedgnn.validated

    def kept(
        protocol: FederatedProtocol, graph: FederatedGraph, seed: int, device: torch.device
    ) -> tuple[float, Trained, Measured]:
        found = validated(protocol, graph, seed, device)
        tried.append((found[0], 100 * found[1].whole_test_set))
        return found

    monkeypatch.setattr(nfedgnn, "validated", kept)
    found = nfedgnn.figure(row, 0, None)
    assert isinstance(found, Measured) and len(tried) == len(nfedgnn.LAMBDAS["cora"])
    assert found.value == max(tried, key=lambda pair: pair[0])[1] and found.gigabytes_up > 0


def test_trainings_are_on_the_device_that_is_asked_for(tmp_path: Path) -> None:
    def trains_there(self: FedPerSage, *_: object, device: torch.device, **__: object) -> None:
        assert device.type == "meta"
        raise ReachedError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ReachedError):
        patch.setattr(PartitionSpec, "apply", lambda *_: example_graph())
        patch.setattr(DatasetSpec, "load", lambda *_: None)
        patch.setattr(FedPerSage, "train", trains_there)
        reproduce("fedgt-table2", tmp_path, only="FedPer, cora, overlapping, 10 clients", device=torch.device("meta"))
    done = CliRunner().invoke(app, ["reproduce", "fedgt-table2", "--device", "gpu", "--out", str(tmp_path)])
    assert isinstance(done.exception, FglauditError) and "cuda" in str(done.exception)


def test_seeds_that_were_used_to_choose_settings_are_not_used() -> None:
    assert list(seeds_of(rows_of("fedgt-table1")[0])) == list(range(2, 12))


def test_fedgts_rows_as_published_have_the_codes_settings() -> None:
    rows = [row for row in rows_of("fedgt-table1") if row.method.endswith(BY_THEIR_CODE)]
    assert {row.method.removesuffix(BY_THEIR_CODE) for row in rows} == {
        "FedGT", "Local", "FedAvg", "FED-PUB", "FedPer", "GCFL+", "GCFL+, parted", "FedSage+", "Gophormer", "GraphGPS",
    }  # fmt: skip
    for row in rows:
        dataset, _ = fedgt.split_of(row, None)
        trained_as = fedgt.protocol(row)
        assert isinstance(trained_as, SubgraphProtocol)
        assert (trained_as.learning_rate, trained_as.weight_decay) == (0.01, 1e-6)
        assert (dataset.features, dataset.split) == ("row-normalised", "random-shared")
        long = row.dataset in ("photo", "computers") and row.method not in (
            fedgt_methods.AS_PUBLISHED_CODE,
            "Local" + BY_THEIR_CODE,
        )
        assert trained_as.local_epochs == (2 if long else 1)


def test_fedgts_rows_at_the_codes_rate_differ_from_the_text_in_that_alone() -> None:
    rows = {row.label: row for table in ("fedgt-table1", "fedgt-table2", "fedgt-table12") for row in rows_of(table)}
    ours = [row for row in rows.values() if row.method.endswith(AT_THEIR_RATE) and not fedgt.obstacle(row)]
    assert len(ours) == 8 * 6 * 5 + 4 * 3, "FedGT of Table 12 is that of Table 2"
    for row in ours:
        by_text = rows[row.label.replace(AT_THEIR_RATE, "")]
        trained, as_written = fedgt.training(row, None), fedgt.training(by_text, None)
        assert isinstance(trained.protocol, SubgraphProtocol) and isinstance(as_written.protocol, SubgraphProtocol)
        assert (trained.protocol.learning_rate, as_written.protocol.learning_rate) == (0.01, 0.001)
        assert replace(trained, protocol=replace(trained.protocol, learning_rate=0.001)) == as_written


def test_fedsages_rows_with_few_hidden_nodes_differ_from_the_text_in_that_alone() -> None:
    rows = {row.label: row for table in ("fedgt-table1", "fedgt-table2", "fedgt-table4") for row in rows_of(table)}
    ours = [row for row in rows.values() if row.method.endswith(FEW_HIDDEN) and not fedgt.obstacle(row)]
    assert len(ours) == 6 * 5 + 3
    for row in ours:
        trained = fedgt.training(row, None)
        as_written = fedgt.training(rows[row.label.replace(FEW_HIDDEN, "")], None)
        assert isinstance(trained.protocol, FedSage) and trained.protocol.hidden_share == 0.1
        assert replace(trained, protocol=replace(trained.protocol, hidden_share=0.5)) == as_written


def test_table_12_as_published_compares_clients_as_its_rows_say_and_has_no_noise() -> None:
    rows = [row for row in rows_of("fedgt-table12") if row.method.endswith(BY_THEIR_CODE)]
    compared = {}
    for row in rows:
        training = fedgt.training(row, None)
        assert isinstance(training.protocol, FedGT) and isinstance(training.defense, NoDefense)
        assert (training.protocol.source, training.protocol.rounds) == ("code", 100)
        compared[row.method.removesuffix(BY_THEIR_CODE)] = training.protocol.similarity
    assert len(rows) == 15 and compared == {
        "FedGT": "global-nodes-unaligned",
        "FedGT w/o optimal transport": "global-nodes-unaligned",
        "FedGT (local-update similarity)": "local-updates",
        "FedGT (label-distribution similarity)": "label-distributions",
        "FedGT (FedAvg aggregation)": "fedavg",
    }


def test_published_fedper_keeps_its_layer_of_classes() -> None:
    graph = example_graph()
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"))
    protocol = PublishedFedPer(rounds=1)
    protocol.train(graph, channel, rng=derive(0, "train"), device=torch.device("cpu"))
    whole, shared = (
        sum(math.prod(shape) for shape in layout(graph.num_features, graph.num_classes).values())
        for layout in (protocol.layout, protocol.shared)
    )
    assert whole - shared == (protocol.hidden + 1) * graph.num_classes
    assert channel.bytes_up.tolist() == [4 * shared] * graph.num_clients


def test_another_library_trains_its_rows_with_its_own_defaults() -> None:
    rows = rows_of(openfgl.TABLE)
    assert {row.method: row.mean for row in rows} == {"FED-PUB": 79.3, "FedSage+": 78.7}
    for row in rows:
        found = protocol_of(row)
        assert isinstance(found, FedPub | FedSage)
        assert (found.rounds, found.local_epochs, found.hidden, found.dropout) == (100, 3, 64, 0.5)
        assert (found.learning_rate, found.weight_decay) == (0.01, 5e-4)
    assert not any(row.table == openfgl.TABLE for row in all_published())  # no figure of the five papers
