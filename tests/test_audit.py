"""One call from a graph in memory to a report."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import fglaudit
from fglaudit import auditing, registry
from fglaudit.context import Context
from fglaudit.datasets.from_memory import content_digest, graph_from
from fglaudit.errors import FglauditError
from fglaudit.finding import COLUMNS
from fglaudit.graph import Graph
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.testing import example_graph

FEDGCN = {"name": "fedgcn", "rounds": 2, "hops": 1}


def arrays() -> dict[str, Any]:
    graph = example_graph(nodes=30, features=8)
    return {"x": graph.x.numpy(), "y": graph.y.numpy(), "edge_index": graph.edge_index.numpy()}


def as_networkx(given: dict[str, Any]) -> Any:
    graph: Any = nx.Graph()
    for node, (x, y) in enumerate(zip(given["x"], given["y"], strict=True)):
        graph.add_node(f"node {node}", x=x, y=int(y))
    graph.add_edges_from((f"node {a}", f"node {b}") for a, b in given["edge_index"].T)
    return graph


def test_the_same_graph_in_any_form_is_the_same_data_set() -> None:
    given = arrays()
    data = Data(**{key: torch.from_numpy(value) for key, value in given.items()})
    digests = {content_digest(graph_from(source)[0]) for source in (given, data, as_networkx(given))}
    assert len(digests) == 1
    other = {**given, "x": 1 - given["x"]}
    assert content_digest(graph_from(other)[0]) not in digests


def test_a_column_of_one_entry_per_node_is_what_it_holds() -> None:
    """Labels of shape [N, 1], as several collections of graphs have them, were refused."""
    given = arrays()
    masks = {f"{name}_mask": np.arange(30) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    whole = {**given, **masks, "clients": np.arange(30) % 2}
    columns = {key: value[:, None] if len(value) == 30 and key != "x" else value for key, value in whole.items()}
    assert columns["y"].shape == columns["clients"].shape == columns["train_mask"].shape == (30, 1)
    assert content_digest(graph_from(whole)[0]) == content_digest(graph_from(columns)[0])


def test_features_in_double_precision_are_read_as_all_others_are() -> None:
    """Of a graph of this package they stayed as they were: GFL-APPNP could not train, and attacks on latents failed."""
    given = {key: torch.from_numpy(value) for key, value in arrays().items()}
    double = {**given, "x": given["x"].double()}
    same = [graph_from(source)[0] for source in (given, double, Graph(**double, name="graph"))]
    assert {graph.x.dtype for graph in same} == {torch.float32} and len({content_digest(graph) for graph in same}) == 1


def test_who_holds_which_node_is_given_and_is_part_of_the_data_set(tmp_path: Path) -> None:
    held = np.arange(30) % 3
    report = fglaudit.audit(arrays(), protocol=FEDGCN, clients=held, observers=["client:2"], attacks=["subset-sum"])
    found = report.findings
    assert set(found.partition) == {"given"} and set(found.clients) == {3}
    reversed_report = fglaudit.audit(arrays(), protocol=FEDGCN, clients=held[::-1].tolist(), observers=["client:2"])
    digests = {one.records[0].partition_facts["digest"] for one in (report, reversed_report)}
    assert len(digests) == 2
    graphs = [graph_from({**arrays(), "clients": who})[0] for who in (held, held[::-1].copy())]
    assert len({content_digest(graph) for graph in (*graphs, graph_from(arrays())[0])}) == 3
    for wrong, words in ((held[:4], "must hold 30"), (held + 1, "without a gap"), (held / 2, "whole numbers")):
        with pytest.raises(FglauditError, match=words):
            fglaudit.audit(arrays(), protocol=FEDGCN, clients=wrong)
    with pytest.raises(FglauditError, match="give one of the two"):
        fglaudit.audit(arrays(), protocol=FEDGCN, clients=held, partition=PartitionSpec("metis", 3))


def test_an_audit_measures_and_saves_what_a_run_would(tmp_path: Path) -> None:
    report = fglaudit.audit(
        arrays(), protocol=FEDGCN, clients=2, observers=["server", ObserverSpec(("client:0",), topology=True)],
        attacks=["subset-sum", {"name": "row-space"}], name="mine",
    )  # fmt: skip
    found = report.findings
    assert list(found.columns) == list(COLUMNS)
    assert set(found.attack) == {"subset-sum", "row-space"} and set(found.observer) == {"client:0"}
    assert found.accuracy.notna().all() and (found.exact_rate > found.control_exact_rate).any()
    assert set(report.coverage.observer) == {"server"} and report.coverage.reason.str.len().min() > 0
    page = report.save(tmp_path / "mine")
    assert page.is_file() and "mine" in page.read_text("utf-8")
    with (tmp_path / "mine" / "findings.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows if row["value"]] == found["value"].dropna().tolist()
    with pytest.raises(FglauditError, match="folder of its own"):
        report.save(tmp_path / "mine")
    assert "subset-sum" in report._repr_html_()


def test_a_stack_is_given_as_in_a_suite_and_its_parts_may_be_instances() -> None:
    parts = ({"stack": ["drop-singletons", each]} for each in ("gaussian", registry.build("defense", "gaussian", {})))
    written = [
        fglaudit.audit(
            arrays(),
            protocol=FEDGCN,
            clients=2,
            defense=each,
            observers=["server"],
            attacks=["row-space"],
            empirical=False,
        )
        for each in parts
    ]
    once, again = (report.records[0].description["defense"] for report in written)
    assert once == again
    assert "stack" in str(written[0])


def test_equal_calls_give_equal_findings() -> None:
    once, again = (
        fglaudit.audit(arrays(), protocol=FEDGCN, clients=2, observers=["client:0"], attacks=["row-space"])
        for _ in range(2)
    )
    columns = [c for c in COLUMNS if not c.startswith("seconds")]
    assert once.findings[columns].equals(again.findings[columns])


def test_what_was_changed_in_a_graph_stands_in_the_record(tmp_path: Path) -> None:
    """In memory and in a file: an audit of another graph than the one that was given must say so."""
    given = arrays()
    ends = given["edge_index"]
    given["edge_index"] = ends[:, ends[0] < ends[1]]
    np.savez(tmp_path / "one-way.npz", **given)
    missing = given["edge_index"].shape[1]
    for source in (given, tmp_path / "one-way.npz"):
        report = fglaudit.audit(source, protocol=FEDGCN, clients=2, observers=["client:0"], attacks=["row-space"])
        (record,) = report.records
        assert any(f"directed edges made undirected ({missing} reverse edges added)" in note for note in record.notes)


def test_what_is_not_used_of_a_graph_is_said_and_undirected_edges_are_no_change() -> None:
    graph: Any = nx.Graph([(0, 1, {"weight": 2.0}), (1, 2, {"weight": 0.5}), (3, 3)])
    for node in graph:
        graph.nodes[node].update(x=[0.0, 1.0 + node], y=node % 2, train_mask=True)
    found, notes = graph_from(graph)
    assert found.edge_index.shape[1] == 4
    assert notes == (
        "not used of edges: 'weight'; every edge counts alike",
        "not used of nodes: 'train_mask'; what is read is x, y, clients",
        "graph: 1 self-loop removed (protocols add their own)",
    )
    given = {**arrays(), "edge_weight": np.ones(3), "train": np.ones(30)}
    notes = graph_from(given)[1]
    assert "not used of edges: 'edge_weight'" in notes[0] and "not used: 'train'" in notes[1]


def test_of_several_splits_the_first_is_used_and_a_note_says_so() -> None:
    given = arrays()
    part = np.arange(30) % 3
    masks = {name: part == place for place, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    both = {key: np.stack([mask, mask[::-1]], 1) for key, mask in masks.items()}
    graph, notes = graph_from({**given, **both})
    one, none = graph_from({**given, **masks})
    assert content_digest(graph) == content_digest(one)
    assert any("of 2 splits in the masks the first one is used" in note for note in notes)
    assert not any("splits" in note for note in none)


def test_a_printed_report_is_its_answers_and_notes() -> None:
    given = {**arrays(), "edge_weight": np.ones(3)}
    report = fglaudit.audit(given, protocol=FEDGCN, clients=2, observers=["client:0"], attacks=["row-space"])
    first, answer, *rest = repr(report).splitlines()
    assert first.startswith("fedgcn") and answer.startswith("Client 0, leaks: ") and "%" in answer
    assert any("edge_weight" in line for line in rest) and len(repr(report)) < 2000
    assert "edge_weight" in report._repr_html_()


def test_an_audit_that_is_stopped_keeps_the_seeds_that_were_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(cell: Any, *rest: Any) -> Any:
        if cell.seed:
            raise KeyboardInterrupt
        return audited(cell, *rest)

    audited = auditing._audited
    monkeypatch.setattr(auditing, "_audited", once)
    with pytest.raises(auditing.AuditInterrupted, match="1 of 3 seeds finished") as stopped:
        fglaudit.audit(
            arrays(), protocol=FEDGCN, clients=2, observers=["client:0"], attacks=["row-space"], seeds=(0, 1, 2)
        )
    assert list(stopped.value.report.findings.seed) == [0]


@dataclass(frozen=True)
class Unwilling(Defense):
    """Serves nobody."""

    name: ClassVar[str] = "unwilling"

    def unsupported(self, context: Context) -> str | None:
        return "it serves nobody"

    def bind(self, context: Context) -> DefenseSession:
        return DefenseSession()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"protocol": "fedgnc"}, "fedgcn"),
    ({"defense": {"name": "gaussian", "epsilon": -1}}, "epsilon"),
    ({"defense": Unwilling()}, "serves nobody"),
    ({"defense": {"stack": ["none", {"name": "gaussian", "epsilon": -1}]}}, r"defense: stack\[1\]: .* epsilon must be"),
    ({"defense": {"stack": [Unwilling(), {"stack": ["none", "none"]}]}}, r"stack\[1\]: a stack has no stack inside"),
    ({"defense": {"stak": ["none", "gaussian"]}}, "did you mean 'stack'"),
    ({"observers": ["client:9"]}, "client:9"),
    ({"observers": ["sever"]}, "sever"),
    ({"attacks": "subset-sum"}, "a list"),
    ({"attacks": [3]}, "must be of kind attack"),
    ({"seeds": ()}, "a list of seeds"),
    ({"seeds": 3}, "a list of seeds"),
    ({"observers": "server"}, "observers are a list"),
    ({"defense": Unwilling}, r"make an instance: Unwilling\(\)"),
    ({"protocol": torch.nn.Linear(2, 2)}, "a model does not say what is sent"),
    ({"clients": 0}, "at least one client"),
    ({"clients": 31}, "31 clients for the 30 nodes"),
    ({"split": "public"}, "public"),
    ({"device": "gpu"}, "gpu"),
    ({"observers": []}, "a list, one at least"),
    ({"observers": 3}, "observers are a list"),
    ({"observers": [3]}, "observers are a list"),
    ({"attacks": []}, "a list, one at least"),
    ({"attacks": None}, "a list, one at least"),
    ({"seeds": "01"}, "all whole numbers; got '01'"),
    ({"seeds": [0.5]}, "all whole numbers"),
    ({"seeds": [0, 0]}, "entries must differ"),
    ({"seeds": [-1]}, "0 or more"),
    ({"partition": "metis"}, "must be a fglaudit.partition.PartitionSpec; got 'metis'"),
    ({"partition": {}}, "must be a fglaudit.partition.PartitionSpec"),
    ({"split": 3}, "split must be text; got 3"),
    ({"device": None}, "device must be text; got None"),
    ({"name": None}, "name must be text"),
    ({"clients": True}, "clients must be a whole number; got True"),
    ({"empirical": "no"}, "empirical must be true or false; got 'no'; write false"),
]


@pytest.mark.parametrize(("changed", "told"), WRONG, ids=[next(iter(w[0])) for w in WRONG])
def test_a_wrong_argument_is_named(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(FglauditError, match=told):
        fglaudit.audit(arrays(), **{"protocol": FEDGCN, "clients": 2, "observers": ["server"], **changed})


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (3, "a graph is .* got int; give {'x': "),
        ([arrays()], "got list; take one graph of it"),
        (type("DGLHeteroGraph", (type("DGLGraph", (), {}),), {})(), r"torch\.stack\(g\.edges\(\)\)"),
        (pd.DataFrame({"a": [1.0]}), r"got DataFrame; give {'x': nodes\[FEATURES\]\.to_numpy\(\)"),
        (HeteroData(), r"data\.to_homogeneous\(\)"),
        ({**arrays(), "y": np.eye(30, dtype=int)}, r"y\.argmax\(1\)"),
        ({"x": np.ones((3, 2)), "y": np.zeros(3, dtype=int)}, "edge_index"),
        ({**arrays(), "x": [[1.0], [1.0, 2.0]]}, "array of numbers"),
        ({**arrays(), "y": np.zeros(3, dtype=int)}, "one label per row"),
        ({**arrays(), "x": np.full((30, 8), np.nan)}, "finite"),
        (nx.path_graph(3), "attribute 'x'"),
        ("coar", "cora"),
        ("missing.npz", "missing.npz"),
    ],
)
def test_a_wrong_graph_is_named(source: Any, told: str) -> None:
    with pytest.raises(FglauditError, match=told):
        fglaudit.audit(source, protocol=FEDGCN)


def test_an_attack_is_listed_once() -> None:
    """Rows go by its name: a weak setting would stand in the place of a strong one."""
    twice = [{"name": "maximum-a-posteriori", "rounds": rounds} for rounds in (2, 8)]
    with pytest.raises(FglauditError, match=r"attacks\[1\].* is attacks\[0\] already"):
        fglaudit.audit(arrays(), protocol=FEDGCN, observers=["client:0"], attacks=twice)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (torch.no_grad(), "gradients must be on; got no_grad"),
        (torch.inference_mode(), "gradients must be on"),
        (torch.autocast("cpu"), "autocast must be off"),
        (torch.device("meta"), "default device must be the CPU; got meta; call"),
    ],
)
def test_torch_set_to_compute_otherwise_is_refused(changed: Any, told: str) -> None:
    given = arrays()
    with changed, pytest.raises(FglauditError, match=told):
        fglaudit.audit(given, protocol=FEDGCN, clients=2, observers=["server"])


def test_another_default_type_of_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    with pytest.raises(FglauditError, match=r"default dtype must be float32; got torch\.float64; call"):
        fglaudit.audit(arrays(), protocol=FEDGCN, clients=2, observers=["server"])


def test_the_parties_of_an_observer_are_no_text() -> None:
    with pytest.raises(FglauditError, match=r"'parties' must be a list, .*; got 'server' .*; write \['server'\]"):
        ObserverSpec("server")  # type: ignore[arg-type]
