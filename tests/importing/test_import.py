"""A graph of a user's own, from the files that people have, by the command itself; what is wrong is one line."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
import yaml
from import_calls import NODES, call, own_folder  # noqa: F401  (a fixture of every test here)
from torch_geometric.data import Data

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.from_memory import graph_from
from fglaudit.suite.overrides import load_suite

X = [[1, 0], [0, 1], [1, 0], [0, 0]]


def arrays(path: str = "out.npz") -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return dict(archive)


def same_graph(path: str = "out.npz") -> bool:
    found = arrays(path)
    pairs = {(int(a), int(b)) for a, b in found["edge_index"].T}
    return bool((found["x"] == X).all()) and pairs == {(0, 1), (1, 0), (1, 2), (2, 1)}


def test_ends_of_edges_are_found_by_name_and_what_is_not_used_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A table with an id of the edge first, and nodes that are called by numbers, gave another graph without a word."""
    Path("nodes.csv").write_text(NODES.replace("\nn", "\n"))
    Path("edges.csv").write_text("id,source,target,weight\n1,1,2,0.5\n2,2,3,0.5\n")
    assert call("import", "nodes.csv", "edges.csv", "-o", "out.npz") == 0 and same_graph()
    assert "not used of edges: id, weight; every edge counts alike" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["graphml", "json", "pt"])
def test_weights_of_edges_are_not_used_in_silence(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    graph: Any = nx.Graph()
    graph.add_nodes_from((n, {"label": n % 2, "a": n}) for n in range(4))
    graph.add_edges_from([(0, 1), (1, 2)], weight=0.5)
    if kind == "graphml":
        nx.write_graphml(graph, "g.graphml")
    elif kind == "json":
        Path("g.json").write_text(json.dumps(nx.node_link_data(graph)))
    else:
        ends, y = torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 0, 1])
        torch.save(Data(x=torch.eye(4), y=y, edge_index=ends, edge_weight=torch.ones(2)), "g.pt")
    assert call("import", f"g.{kind}", "-o", "out.npz") == 0
    said = capsys.readouterr().out
    assert "not used of edges" in said and "weight" in said


def test_two_tables_and_what_is_said_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("import", "nodes.csv", "edges.csv", "-o", "out.npz") == 0
    said = capsys.readouterr().out
    assert "4 nodes, 2 undirected edges, 2 features (binary), 2 classes; masks" in said
    for note in (
        "1 missing feature value set to 0",
        "1 node without a label: -1",
        "2 classes numbered: blue = 0, red = 1",
        "directed: 1 edge is listed in one direction only and 2 in both",
        "1 duplicate edge removed",
        "1 self-loop removed",
        "1 node without an edge",
    ):
        assert f"note: {note}" in said, said
    assert same_graph()
    found = arrays()
    assert found["y"].tolist() == [1, 0, 1, -1]
    assert [found[f"{part}_mask"].nonzero()[0].tolist() for part in ("train", "val", "test")] == [[0], [1], [2]]
    graph, notes = DatasetSpec("npz", path="out.npz").load_with_notes()
    assert graph.num_nodes == 4 and notes == ()


@pytest.mark.parametrize(("out", "masked"), [("out.npz", True), ("my graph.npz", False)])
def test_what_it_says_to_paste_runs(out: str, masked: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Without masks a suite has to say how nodes are split, and a path may have spaces."""
    if not masked:
        Path("nodes.csv").write_text(
            NODES.replace("split", "c").replace("train", "1").replace("val", "2").replace("test", "3")
        )
    assert call("import", "nodes.csv", "edges.csv", "-o", out) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("use it: "))
    command, _, entry = line.partition(", or datasets: ")
    assert shlex.split(command)[-1] == out
    [named] = yaml.safe_load(entry.removesuffix(" in a suite beside it"))
    assert named == {"name": "npz", "path": out, **({} if masked else {"split": "random"})}
    assert DatasetSpec(**named).load().num_nodes == 4


def test_the_table_of_edges_first_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("import", "edges.csv", "nodes.csv", "-o", "out.npz") == 2
    assert (
        "edges.csv has columns source and target, as edges have; name the other file first" in capsys.readouterr().err
    )


def test_numbers_of_classes_that_are_hardly_meant_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nodes.csv").write_text("id,label,a\nn1,1,1\nn2,1,0\nn3,3,1\nn4,3,0\n")
    assert call("import", "nodes.csv", "edges.csv", "-o", "out.npz") == 0
    said = capsys.readouterr().out
    assert "note: 4 classes are counted, by the largest label, and 2 have no node (0, 2): number the classes" in said
    Path("nodes.csv").write_text("id,label,a\nn1,0,1\nn2,1,0\nn3,2,1\nn4,3,0\n")
    assert call("import", "nodes.csv", "edges.csv", "-o", "out.npz", "--replace") == 0
    assert "note: every class has a single node" in capsys.readouterr().out


def test_clients_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nodes.csv").write_text("id,label,client,a\nn1,0,north,1\nn2,1,south,0\nn3,0,east,1\nn4,1,south,0\n")
    assert call("import", "nodes.csv", "edges.csv", "-o", "out.npz") == 0
    said = capsys.readouterr().out
    assert "3 clients: east = 0 (1 node), north = 1 (1 node), south = 2 (2 nodes)" in said
    assert "partitions: [{scheme: given, clients: 3}]" in said
    assert arrays()["clients"].tolist() == [1, 2, 0, 2]
    graph = DatasetSpec("npz", path="out.npz").load()
    assert graph.num_clients == 3 and graph.num_features == 1
    Path("nodes.csv").write_text("id,label,site,a\nn1,0,10,1\nn2,1,9,0\nn3,0,10,1\nn4,1,,0\n")
    assert call("import", "nodes.csv", "edges.csv", "-o", "more.npz", "--client", "site") == 2
    assert "every node is at some client; 'site' is empty at nodes.csv line 5" in capsys.readouterr().err
    Path("nodes.csv").write_text("id,label,site,a\nn1,0,10,1\nn2,1,9,0\nn3,0,10,1\nn4,1,9,0\n")
    assert call("import", "nodes.csv", "edges.csv", "-o", "more.npz", "--client", "site") == 0
    assert arrays("more.npz")["clients"].tolist() == [1, 0, 1, 0]


def test_other_separators_no_header_of_edges_and_named_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Path("n.csv").write_text("who;kind;a;b;words\n1;0;1;0;x\n2;1;0;1;y\n3;0;1;0;z\n4;1;0;0;w\n")
    Path("e.csv").write_text("1;2\n2;3\n")
    options = ("--label", "kind", "--id", "who", "--drop", "words")
    assert call("import", "n.csv", "e.csv", "-o", "out.npz", *options) == 0
    assert "2 edges are listed in one direction; all are used undirected" in capsys.readouterr().out
    assert same_graph() and arrays()["y"].tolist() == [0, 1, 0, 1] and "train_mask" not in arrays()


def graph() -> Any:
    made: Any = nx.Graph()
    for i, row in enumerate(X):
        made.add_node(f"n{i}", y=i % 2, a=row[0], b=row[1])
    made.add_edges_from([("n0", "n1"), ("n1", "n2")])
    return made


def node_link() -> Any:
    """As networkx writes it; the parameter that names the list of edges is younger than networkx 3.2."""
    known = "edges" in inspect.signature(nx.node_link_data).parameters
    return nx.node_link_data(graph(), edges="links") if known else nx.node_link_data(graph())


def write_gml(path: str) -> None:
    numbered: Any = nx.convert_node_labels_to_integers(graph(), label_attribute="called")
    nx.write_gml(nx.relabel_nodes(numbered, {i: f"node {i}" for i in range(4)}), path)
    text = Path(path).read_text()
    Path(path).write_text("\n".join(line for line in text.splitlines() if "called" not in line))


def test_graph_files() -> None:
    nx.write_graphml(graph(), "g.graphml")
    write_gml("g.gml")
    Path("g.json").write_text(json.dumps(node_link()))
    nested = {
        "nodes": [{"id": i, "y": i % 2, "x": row} for i, row in enumerate(X)],
        "edges": [[0, 1], [1, 2]],
    }
    Path("nested.json").write_text(json.dumps(nested))
    for name in ("g.graphml", "g.gml", "g.json", "nested.json"):
        assert call("import", name, "-o", "out.npz", "--replace") == 0, name
        assert same_graph() and arrays()["y"].tolist() == [0, 1, 0, 1], name


def test_data_of_pytorch_geometric_is_loaded_without_running_code(capsys: pytest.CaptureFixture[str]) -> None:
    mask = torch.tensor([[True, False], [False, True], [False, False], [False, False]])
    data = Data(
        x=torch.tensor(X).float(), y=torch.tensor([[0], [1], [0], [1]]), edge_index=torch.tensor([[0, 1], [1, 2]])
    )
    data.train_mask, data.val_mask, data.test_mask = mask, mask.roll(1, 0), mask.roll(2, 0)
    torch.save(data, "data.pt")
    torch.save({"x": data.x, "y": data.y, "edge_index": data.edge_index, "train_mask": mask}, "plain.pt")
    assert call("import", "data.pt", "-o", "out.npz") == 0
    assert "train_mask: the first of 2 splits is used" in capsys.readouterr().out
    assert same_graph() and arrays()["train_mask"].tolist() == [True, False, False, False]
    assert call("import", "plain.pt", "-o", "plain.npz") == 0
    assert "masks left out, as test_mask, val_mask is missing" in capsys.readouterr().out and same_graph("plain.npz")
    torch.save(Runs(), "evil.pt")
    assert call("import", "evil.pt", "-o", "evil.npz") == 2
    assert not Path("ran").exists() and "without running code" in capsys.readouterr().err


class Runs:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, Sequence[str]]:
        return (Path.touch, (Path("ran"),))  # type: ignore[return-value]


SUITE = """
name: mine
datasets: [{name: npz, path: PATH, split: random}]
partitions: [{scheme: dirichlet, clients: 2, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
"""


def test_an_own_graph_is_found_beside_the_suite_and_a_missing_one_names_where_it_was_looked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("audits").mkdir()
    assert call("import", "nodes.csv", "edges.csv", "-o", "audits/mine.npz") == 0
    Path("audits/suite.yaml").write_text(SUITE.replace("PATH", "mine.npz"))
    assert load_suite("audits/suite.yaml").datasets[0].load().num_nodes == 4
    monkeypatch.chdir("/")
    assert load_suite(str(tmp_path / "audits" / "suite.yaml")).datasets[0].load().num_nodes == 4
    (tmp_path / "audits" / "lost.yaml").write_text(SUITE.replace("PATH", "lost.npz"))
    capsys.readouterr()
    assert call("run", str(tmp_path / "audits" / "lost.yaml"), "--dry-run") == 2
    error = capsys.readouterr().err
    assert "datasets[0]" in error and "lost.npz in /," in error and f"beside the suite in {tmp_path}/audits" in error


def test_minus_one_is_no_class_unless_one_is_the_only_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Of classes -1 and 1 the first counted as unlabelled, and the file was refused for its single class."""
    for labels, said, y in (
        (("-1", "1", "-1", "1"), "2 classes numbered: -1 = 0, 1 = 1", [0, 1, 0, 1]),
        (("-1", "1", "0", "1"), "1 node without a label: -1, unlabelled", [-1, 1, 0, 1]),
    ):
        Path("nodes.csv").write_text(
            "who,label,a\n" + "".join(f"n{i},{label},{i % 2}\n" for i, label in enumerate(labels, 1))
        )
        assert call("import", "nodes.csv", "edges.csv", "-o", "out.npz", "--replace") == 0
        out = capsys.readouterr().out
        assert f"note: {said}" in out and "note: nodes are named by 'who', their class is 'label'" in out
        assert arrays()["y"].tolist() == y


def test_sparse_features_are_read() -> None:
    """They ended in an error of torch's (a file), or in "rows differ in length" (scipy's, in memory)."""
    graph = {"y": torch.tensor([0, 1, 0, 1]), "edge_index": torch.tensor([[0, 1], [1, 2]])}
    torch.save(Data(x=torch.eye(4).to_sparse(), **graph), "g.pt")
    assert call("import", "g.pt", "-o", "out.npz") == 0
    assert np.array_equal(arrays()["x"], np.eye(4))
    for x in (scipy.sparse.csr_matrix(np.eye(4)), torch.eye(4).to_sparse_csr()):
        assert torch.equal(graph_from({"x": x, **graph})[0].x, torch.eye(4))
