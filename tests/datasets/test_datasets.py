"""Data sets: real files where a root has them, and what goes wrong with them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import fglaudit.datasets.catalog as catalog
from fglaudit.datasets import DatasetSpec, check_root, dataset_facts, fetch, verify_checksums
from fglaudit.datasets.pyg_parse import parse
from fglaudit.datasets.root import CHECKSUMS
from fglaudit.errors import FglauditError
from fglaudit.graph import canonical_edges

ROOT = Path(os.environ.get("FGLAUDIT_DATA") or "../shared/data").resolve()
PUBLISHED = {  # nodes, undirected edges without loops, features, classes, training nodes of the public split
    "cora": (2708, 5278, 1433, 7, 140),
    "citeseer": (3327, 4552, 3703, 6, 120),
    "pubmed": (19717, 44324, 500, 3, 60),
    "computers": (13752, 245861, 767, 10, "none"),
    "photo": (7650, 119081, 745, 8, "none"),
    "chameleon": (2277, 31371, 2325, 5, 1092),
    "squirrel": (5201, 198353, 2089, 5, 2496),
}


def raw_folder(name: str, root: Path = ROOT) -> Path:
    source = catalog.PYG_SOURCES[name]
    return root / source.folder / source.raw


def need(name: str) -> None:
    if not raw_folder(name).is_dir():
        pytest.skip(f"{name} is not under the data root {ROOT}")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("FGLAUDIT_CACHE", str(folder))
    return folder


@pytest.fixture
def cora_copy(tmp_path: Path) -> Path:
    """A root of one's own with Cora's raw files, to be damaged."""
    need("cora")
    shutil.copytree(raw_folder("cora"), raw_folder("cora", tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_sets_have_their_published_counts(name: str) -> None:
    need(name)
    before = sorted(ROOT.rglob("*"))
    graph = DatasetSpec(name, root=str(ROOT)).load()
    facts = dataset_facts(graph)
    assert tuple(facts[k] for k in ("nodes", "edges", "features", "classes", "train")) == PUBLISHED[name]
    assert torch.equal(graph.edge_index, canonical_edges(graph.edge_index, graph.num_nodes))
    assert sorted(ROOT.rglob("*")) == before, "nothing may be written into the data root"


def test_directed_sets_say_what_was_changed() -> None:
    need("chameleon")
    graph, notes = DatasetSpec("chameleon", root=str(ROOT), split_index=9).load_with_notes()
    assert any("50 self-loops" in note for note in notes) and any("undirected" in note for note in notes)
    first = DatasetSpec("chameleon", root=str(ROOT)).load()
    assert first.train is not None and graph.train is not None and not torch.equal(first.train, graph.train)
    with pytest.raises(FglauditError, match="split_index"):
        DatasetSpec("chameleon", root=str(ROOT), split_index=10).load()


def test_cached_load_equals_first_load(cora_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGLAUDIT_CACHE", str(tmp_path / "cache"))
    first = DatasetSpec("cora", root=str(cora_copy)).load()
    (cached,) = (tmp_path / "cache").iterdir()
    again = DatasetSpec("cora", root=str(cora_copy)).load()
    assert torch.equal(first.x, again.x) and torch.equal(first.edge_index, again.edge_index)
    cached.write_bytes(cached.read_bytes()[:1000])
    repaired = DatasetSpec("cora", root=str(cora_copy)).load()
    assert torch.equal(first.x, repaired.x)


@pytest.mark.parametrize("file", catalog.PYG_SOURCES["cora"].files)
def test_truncated_files_are_named_even_with_a_warm_cache(cora_copy: Path, file: str) -> None:
    spec = DatasetSpec("cora", root=str(cora_copy))
    spec.load()
    path = raw_folder("cora", cora_copy) / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(FglauditError, match="fglaudit data fetch cora"):
        spec.load()


def test_checksums_are_checked_before_anything_is_parsed(cora_copy: Path) -> None:
    need("cora")
    if not (ROOT / CHECKSUMS).is_file():
        pytest.skip("the data root has no SHA256SUMS")
    lines = [line for line in (ROOT / CHECKSUMS).read_text().splitlines() if "planetoid/Cora" in line]
    (cora_copy / CHECKSUMS).write_text("\n".join(lines))
    assert verify_checksums(cora_copy) == []
    path = raw_folder("cora", cora_copy) / "ind.cora.graph"
    path.write_bytes(path.read_bytes() + b"x")
    assert [Path(p).name for p in verify_checksums(cora_copy)] == ["ind.cora.graph"]
    with pytest.raises(FglauditError, match=r"ind\.cora\.graph is corrupt"):
        DatasetSpec("cora", root=str(cora_copy)).load()


def test_missing_files_name_folder_and_fix(tmp_path: Path) -> None:
    for name in catalog.PYG_SOURCES | catalog.OGB_SOURCES:
        with pytest.raises(FglauditError, match="missing") as caught:
            DatasetSpec(name, root=str(tmp_path)).load()
        assert str(tmp_path) in str(caught.value) and "--root" in str(caught.value)
    with pytest.raises(FglauditError, match="is no folder"):
        DatasetSpec("cora", root=str(tmp_path / "nowhere")).load()
    assert {status for _, status in check_root(tmp_path)} == {
        status for _, status in check_root(tmp_path) if "absent" in status
    }


def test_loading_never_downloads(tmp_path: Path) -> None:
    """A file that vanishes between the check and the parse must not make torch-geometric reach for the network."""
    with pytest.raises(FglauditError, match="may not download"):
        parse(catalog.PYG_SOURCES["cora"], tmp_path)


def test_fetch_offline_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_geometric.datasets

    def unreachable(self: object) -> None:
        raise OSError("network is unreachable")

    monkeypatch.setattr(torch_geometric.datasets.Planetoid, "download", unreachable)
    with pytest.raises(FglauditError, match=r"could not be downloaded.*check the network"):
        fetch("cora", tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    with pytest.raises(FglauditError, match="needs no download"):
        fetch("csbm-cora", tmp_path)
    with pytest.raises(FglauditError, match="unpack http"):
        fetch("ogbn-arxiv", tmp_path)
    with pytest.raises(FglauditError, match="did you mean 'cora'"):
        fetch("coar", tmp_path)


def test_fetch_keeps_only_raw_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("cora")
    import torch_geometric.datasets

    def copied(self: Any) -> None:
        for file in catalog.PYG_SOURCES["cora"].files:
            shutil.copy(raw_folder("cora") / file, self.raw_dir)

    monkeypatch.setattr(torch_geometric.datasets.Planetoid, "download", copied)
    folder = fetch("cora", tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == sorted(catalog.PYG_SOURCES["cora"].files)
    assert folder == raw_folder("cora", tmp_path)
    assert DatasetSpec("cora", root=str(tmp_path)).load().num_nodes == 2708


def test_wikics_reads_its_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real file is not at hand; a small one in its format goes through the same reader."""
    monkeypatch.setitem(
        catalog.PYG_SOURCES,
        "wikics",
        catalog.PygSource(
            "wikics", "raw", ("data.json",), 4, None, 2, 2, None, "WikiCS", lambda c, r: c(r, is_undirected=True)
        ),
    )
    folder = tmp_path / "wikics/raw"
    folder.mkdir(parents=True)
    data = {
        "features": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]],
        "labels": [0, 1, 0, 1],
        "links": [[1], [2], [3], []],
        "train_masks": [[True, False, False, False], [False, True, False, False]],
        "val_masks": [[False, True, False, False], [True, False, False, False]],
        "stopping_masks": [[False] * 4] * 2,
        "test_mask": [False, False, True, True],
    }
    (folder / "data.json").write_text(json.dumps(data))
    graph = DatasetSpec("wikics", root=str(tmp_path), split_index=1).load()
    assert graph.edge_index.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
    assert graph.train is not None and graph.train.tolist() == [False, True, False, False]
    assert graph.test is not None and graph.test.tolist() == [False, False, True, True]


def test_ogb_reads_its_csv_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog.OGB_SOURCES, "ogbn-arxiv", catalog.OgbSource("ogb/ogbn_arxiv", "time", 4, 2, 3, "URL"))
    tables = {
        "raw/edge": "0,1\n1,2\n3,2\n",
        "raw/node-feat": "0.5,1\n2,3\n4,5\n6,7.25\n",
        "raw/node-label": "0\n2\n1\n0\n",
        "split/time/train": "0\n3\n",
        "split/time/valid": "1\n",
        "split/time/test": "2\n",
    }
    for name, text in tables.items():
        path = tmp_path / "ogb/ogbn_arxiv" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    graph = DatasetSpec("ogbn-arxiv", root=str(tmp_path)).load()
    assert graph.edge_index.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
    assert graph.x[3].tolist() == [6, 7.25] and graph.y.tolist() == [0, 2, 1, 0]
    assert graph.train is not None and graph.train.tolist() == [True, False, False, True]
    feat = tmp_path / "ogb/ogbn_arxiv/raw/node-feat.csv.gz"
    feat.write_bytes(feat.read_bytes()[:20])
    with pytest.raises(FglauditError, match="readable"):
        DatasetSpec("ogbn-arxiv", root=str(tmp_path)).load()
