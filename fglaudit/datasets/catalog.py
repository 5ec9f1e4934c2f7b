"""What each public data set is: where its raw files lie under a root, and the counts they must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DESCRIPTIONS = {
    "csbm-cora": "built-in block model drawn to Cora's statistics; no download",
    "csbm": "general contextual stochastic block model; parameters under csbm",
    "csbm-dnc": "GFL-APPNP's block model, 200 nodes with one sample each; draws and parameters under draw and task",
    "csbm-snc": "the same with 40 samples per node that share its label, [N, S, F]",
    "csbm-sc": "the same with 50 nodes, 120 samples per node and a label for each sample",
    "subcora": "GFL-APPNP's subgraphs of Cora, 300 nodes around a training set of 30 to 50; needs Cora's files",
    "subcora-published": "the 36 such subgraphs whose seeds its authors published; some fall into parts",
    "npz": "a graph of your own: path to an .npz with x, edge_index, y, optional train_mask, val_mask, test_mask",
    "cora": "citations, 2708 nodes, 7 classes, binary words",
    "citeseer": "citations, 3327 nodes, 6 classes, binary words",
    "pubmed": "citations, 19717 nodes, 3 classes, TF-IDF words",
    "computers": "Amazon co-purchases, 13752 nodes, 10 classes, binary words; random splits only",
    "photo": "Amazon co-purchases, 7650 nodes, 8 classes, binary words; random splits only",
    "chameleon": "Wikipedia pages, 2277 nodes, 5 classes, heterophilous, 10 public splits",
    "squirrel": "Wikipedia pages, 5201 nodes, 5 classes, heterophilous, 10 public splits",
    "wikics": "Wikipedia computer science pages, 11701 nodes, 10 classes, real-valued features, 20 public splits",
    "ogbn-arxiv": "arXiv citations, 169343 nodes, 40 classes, real-valued features",
    "ogbn-products": "Amazon co-purchases, 2449029 nodes, 47 classes, real-valued features",
}
DETAILS = {
    "npz": """\
arrays of the file (N nodes, F features, E edges; numpy.savez or `fglaudit import` writes it):
  x [N, F]           numbers of any kind from -1e15 to 1e15, kept as float32: one feature row per node
  edge_index [2, E]  integers 0 ... N - 1, row numbers of x; used undirected, distinct and without loops
  y [N]              integers: class numbers 0, 1, ..., two or more, at most as many as nodes; -1 is
                     unlabelled
  train_mask, val_mask, test_mask [N]
                     booleans, all three or none, disjoint, labelled nodes only; without them use split: random
A relative path is looked for here, then in the folder of the suite file.""",
}
"""What ``fglaudit show`` adds about a data set."""
CUT = {"subcora": "cora", "subcora-published": "cora"}
"""Data sets that are cut from the files of another."""
ALIASES = {"amazon-computers": "computers", "amazon-photo": "photo", "wiki-cs": "wikics"}


@dataclass(frozen=True)
class PygSource:
    """A data set that a torch-geometric class reads.

    Attributes:
        folder: the class's root, relative to the data root.
        raw: folder of the raw files, relative to ``folder``.
        files: names of the raw files.
        nodes, edges, features, classes: what a sound copy gives; ``edges`` are the columns of ``edge_index`` as loaded,
            None where the number is not asserted.
        split: nodes in the (first) public train, validation and test mask; None where there is none or it is not
            asserted.
        make: calls the class with (class, root).
        class_name: in ``torch_geometric.datasets``.
    """

    folder: str
    raw: str
    files: tuple[str, ...]
    nodes: int
    edges: int | None
    features: int
    classes: int
    split: tuple[int, int, int] | None
    class_name: str
    make: Callable[[Any, str], Any] = field(repr=False)


@dataclass(frozen=True)
class OgbSource:
    """An Open Graph Benchmark node-classification set as published CSV files, below ``folder`` of the data root."""

    folder: str
    split: str
    nodes: int
    features: int
    classes: int
    url: str


def _planetoid(name: str, nodes: int, edges: int, features: int, classes: int, train: int) -> PygSource:
    """Return a Planetoid set; ``train`` counts the nodes of its public training mask."""
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return PygSource(
        folder="planetoid",
        raw=f"{name}/raw",
        files=tuple(f"ind.{name.lower()}.{part}" for part in parts),
        nodes=nodes,
        edges=edges,
        features=features,
        classes=classes,
        split=(train, 500, 1000),
        class_name="Planetoid",
        make=lambda cls, root: cls(root, name),
    )


def _amazon(name: str, nodes: int, edges: int, features: int, classes: int) -> PygSource:
    """Return an Amazon co-purchase set, which has no public split."""
    return PygSource(
        folder="amazon",
        raw=f"{name}/raw",
        files=(f"amazon_electronics_{name.lower()}.npz",),
        nodes=nodes,
        edges=edges,
        features=features,
        classes=classes,
        split=None,
        class_name="Amazon",
        make=lambda cls, root: cls(root, name),
    )


def _wikipedia(name: str, nodes: int, edges: int, features: int, split: tuple[int, int, int]) -> PygSource:
    """Return a Wikipedia set; ``split`` counts the nodes of its first public train, validation and test mask."""
    splits = tuple(f"{name}_split_0.6_0.2_{i}.npz" for i in range(10))
    return PygSource(
        folder="wikipedia",
        raw=f"{name}/geom_gcn/raw",
        files=("out1_node_feature_label.txt", "out1_graph_edges.txt", *splits),
        nodes=nodes,
        edges=edges,
        features=features,
        classes=5,
        split=split,
        class_name="WikipediaNetwork",
        make=lambda cls, root: cls(root, name, geom_gcn_preprocess=True),
    )


PYG_SOURCES = {
    "cora": _planetoid("Cora", 2708, 10556, 1433, 7, train=140),
    "citeseer": _planetoid("CiteSeer", 3327, 9104, 3703, 6, train=120),
    "pubmed": _planetoid("PubMed", 19717, 88648, 500, 3, train=60),
    "computers": _amazon("Computers", 13752, 491722, 767, 10),
    "photo": _amazon("Photo", 7650, 238162, 745, 8),
    "chameleon": _wikipedia("chameleon", 2277, 36101, 2325, (1092, 729, 456)),
    "squirrel": _wikipedia("squirrel", 5201, 217073, 2089, (2496, 1664, 1041)),
    "wikics": PygSource(
        folder="wikics",
        raw="raw",
        files=("data.json",),
        nodes=11701,
        edges=None,
        features=300,
        classes=10,
        split=None,
        class_name="WikiCS",
        make=lambda cls, root: cls(root, is_undirected=True),
    ),
}

_OGB = "http://snap.stanford.edu/ogb/data/nodeproppred"
OGB_SOURCES = {
    "ogbn-arxiv": OgbSource("ogb/ogbn_arxiv", "time", 169343, 128, 40, f"{_OGB}/arxiv.zip"),
    "ogbn-products": OgbSource("ogb/ogbn_products", "sales_ranking", 2449029, 100, 47, f"{_OGB}/products.zip"),
}
OGB_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def ogb_files(name: str) -> list[str]:
    """Return the files needed, relative to the data set's folder."""
    raw = [f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label")]
    return raw + [f"split/{OGB_SOURCES[name].split}/{part}.csv.gz" for part in OGB_SPLITS.values()]
