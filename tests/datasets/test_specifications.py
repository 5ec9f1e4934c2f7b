"""What a suite says of its data: a user's own graph, rows, components, names and options, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fglaudit.datasets.catalog as catalog
from fglaudit.datasets import DatasetSpec, dataset_names
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.datasets.from_memory import graph_from
from fglaudit.errors import FglauditError


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("FGLAUDIT_CACHE", str(folder))
    return folder


# A user's own graph


def arrays(**changes: Any) -> dict[str, Any]:
    base = {
        "x": np.eye(4, 3, dtype=np.float32),
        "edge_index": np.array([[0, 1, 1, 2], [1, 0, 2, 3]]),
        "y": np.array([0, 1, 1, 0]),
    }
    return {key: value for key, value in (base | changes).items() if value is not None}


def own_graph(tmp_path: Path, **changes: Any) -> DatasetSpec:
    path = tmp_path / "own.npz"
    np.savez(path, **arrays(**changes))
    return DatasetSpec("npz", path=str(path), split="random")


def test_own_graph_is_made_canonical_and_says_so(tmp_path: Path) -> None:
    edges = np.array([[0, 1, 1, 1, 2], [1, 0, 2, 2, 2]])
    graph, notes = own_graph(tmp_path, edge_index=edges).load_with_notes()
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert [note.split(": ", 1)[1] for note in notes] == [
        "1 self-loop removed (protocols add their own)",
        "1 duplicate edge removed",
        "directed edges made undirected (1 reverse edge added)",
    ]
    assert graph.train is None and graph.x.dtype == torch.float32


@pytest.mark.parametrize("name", ["people.csv", "people.npz", "graphs/links.graphml"])
def test_a_file_in_place_of_a_name_is_told_how_a_file_is_given(name: str) -> None:
    """The list of known names was all that a newcomer with two CSV files was told."""
    with pytest.raises(FglauditError, match=r"name: npz, path: FILE\.npz.*fglaudit import"):
        DatasetSpec(name)


def test_own_masks_are_used(tmp_path: Path) -> None:
    masks = {name: np.arange(4) == k for k, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    graph = own_graph(tmp_path, **masks).load()
    assert graph.val is not None and graph.val.tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": np.array([[0.0, np.nan], [1, 1], [1, 1], [1, 1]])}, r"rows have NaN or inf, the first is 0"),
        ({"x": np.full((4, 2), np.inf)}, "4 rows have NaN or inf"),
        ({"x": np.array([[0.0, 1], [1, -1e38], [1, 1], [1, 1]])}, r"column 1 reaches 1e\+38; rescale"),
        ({"x": np.zeros(4)}, r"x must have shape \[nodes, features\]"),
        ({"x": np.array([["a"], ["b"], ["c"], ["d"]])}, "x must hold numbers"),
        ({"y": np.array([0, 1])}, r"y must have shape \[4\]"),
        ({"y": np.array([0.0, 1, 1, 0])}, "y must hold integers"),
        ({"y": np.array([0, 1, -2, 0])}, "labels must be >= 0"),
        ({"y": np.full(4, -1)}, "at least one node must have a label"),
        ({"y": np.zeros(4, dtype=int)}, "at least two; every label is 0"),
        ({"edge_index": np.array([[0, 1], [1, 4]])}, r"nodes 0 \.\.\. 3; got \[4\]"),
        ({"edge_index": np.array([[0, -1], [1, 2]])}, r"got \[-1\]"),
        ({"edge_index": np.array([[0.0], [1.0]])}, "edge_index must hold integers"),
        ({"edge_index": np.zeros((5, 2), dtype=int)}, "transpose"),
        ({"y": None}, r"missing \['y'\]"),
        ({"train_mask": np.ones(4, bool)}, "all of train_mask"),
        ({f"{m}_mask": np.ones(4, bool) for m in ("train", "val", "test")}, "4 nodes are in more than one"),
        ({f"{m}_mask": np.zeros(4, int) for m in ("train", "val", "test")}, "must be boolean"),
        ({f"{m}_mask": np.zeros(5, bool) for m in ("train", "val", "test")}, r"must have shape \[4\]"),
        ({"x": np.array([[None], [1], [2], [3]], dtype=object)}, "without pickled objects"),
    ],
)
def test_own_graph_errors(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        own_graph(tmp_path, **changes).load()


def test_own_file_missing_truncated_or_no_archive(tmp_path: Path) -> None:
    with pytest.raises(FglauditError, match="is none"):
        DatasetSpec("npz", path=str(tmp_path / "none.npz")).load()
    spec = own_graph(tmp_path)
    path = tmp_path / "own.npz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FglauditError, match="sound"):
        spec.load()
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(FglauditError, match=r"single \.npy"):
        spec.load()


# The specification itself


def test_row_normalised_rows_add_up_to_one_and_zero_rows_stay(tmp_path: Path) -> None:
    spec = own_graph(tmp_path, x=np.array([[1, 1, 0], [0, 0, 0], [-1, 1, 2], [0, 0, 5]]))
    x = DatasetSpec("npz", path=spec.path, features="row-normalised").load().x
    assert x.tolist() == [[0.5, 0.5, 0], [0, 0, 0], [-0.25, 0.25, 0.5], [0, 0, 1]]


def test_standardised_columns_have_one_scale_and_say_what_is_public(tmp_path: Path) -> None:
    x = np.array([[1e5, 1, 7], [3e5, 2, 7], [1e5, 3, 7], [3e5, 2, 7]])
    spec = own_graph(tmp_path, x=x)
    raw, notes = spec.load_with_notes()
    assert raw.x.tolist() == x.tolist() and any("differ in scale" in note for note in notes)
    graph, notes = DatasetSpec("npz", path=spec.path, features="standardised").load_with_notes()
    root = float(np.sqrt(2))
    expected = torch.tensor([[-1, -root, 0], [1, 0, 0], [-1, root, 0], [1, 0, 0]])
    assert torch.allclose(graph.x, expected) and torch.equal(graph.x[:, 2], torch.zeros(4))
    assert not any("differ in scale" in note for note in notes) and any("count as public" in note for note in notes)
    _, told = graph_from({**arrays(), "x": x})
    assert any("differ in scale" in note for note in told)


def test_one_class_that_is_nearly_all_is_said(tmp_path: Path) -> None:
    n = 20
    uneven = {"x": np.eye(n), "y": np.array([1] + [0] * (n - 1)), "edge_index": np.array([[0, 1], [1, 0]])}
    notes = own_graph(tmp_path, **uneven).load_with_notes()[1]
    assert any("95.0% of the labelled nodes are of class 0" in note for note in notes)


def test_largest_component_is_cut_out_and_renumbered(tmp_path: Path) -> None:
    spec = own_graph(tmp_path, edge_index=np.array([[1, 2], [3, 3]]))
    graph = DatasetSpec("npz", path=spec.path, component="largest").load()
    assert graph.y.tolist() == [1, 1, 0]
    assert graph.edge_index.tolist() == [[0, 1, 2, 2], [2, 2, 0, 1]]


def test_aliases_and_plain_json() -> None:
    assert DatasetSpec("amazon-photo") == DatasetSpec("photo")
    json.dumps(asdict(DatasetSpec("csbm", csbm=CsbmOptions(class_sizes=(500, 500), classes=2))))
    assert set(catalog.PYG_SOURCES) | set(catalog.OGB_SOURCES) < set(dataset_names())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "coraa"}, "did you mean 'cora'"),
        ({"name": "cora", "features": "row-normalized"}, "did you mean 'row-normalised'"),
        ({"name": "cora", "split": "publik"}, "did you mean 'public'"),
        ({"name": "cora", "component": "larges"}, "did you mean 'largest'"),
        ({"name": "npz"}, "path belongs to name: npz"),
        ({"name": "cora", "path": "x.npz"}, "path belongs to name: npz"),
        ({"name": "cora", "csbm": CsbmOptions()}, "csbm parameters belong"),
        ({"name": "cora", "train": 0.9}, "add up to at most 1"),
        ({"name": "cora", "train": float("nan")}, "'train' must be .* a number must be finite"),
        ({"name": "cora", "train": 0.0}, "train must be above 0"),
        ({"name": "cora", "split_index": -1}, "split_index"),
    ],
)
def test_bad_specifications(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        DatasetSpec(**fields)


def test_general_block_model_loads_with_its_options() -> None:
    graph = DatasetSpec("csbm", csbm=CsbmOptions(nodes=60, edges=90, classes=3, dimensions=40)).load()
    assert (graph.num_nodes, graph.edge_index.shape[1], graph.name) == (60, 180, "csbm")
