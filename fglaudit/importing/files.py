"""Reads the files of ``fglaudit import``: CSV, GraphML, GML, JSON (node-link), and PyTorch Geometric's ``Data``."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fglaudit.datasets.npz_archive import memory_limit
from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files.user import read_text
from fglaudit.importing.node_table import NodeTable, read_names

FORMATS = (".csv", ".graphml", ".gml", ".json", ".pt")
NAMES = ("id", "node", "node_id", "name")
_ENDS = {"source", "target"}


def _text_of(path: Path) -> str:
    return read_text(path, "a file to import", memory_limit() // 16)


def read_csv(nodes: Path, edges: Path, name: str | None) -> NodeTable:
    """Read a table of nodes and one of edges.

    Args:
        nodes: a header, and a line per node: its name, its label, features.
        edges: a line per edge, whose columns source and target name its ends, or the first two where it has none of
            these names; a header is optional.
        name: the column with the names of nodes; None takes the first of ``NAMES`` that is there, else the first one.
    """
    head, lines = _table(nodes)
    repeated = sorted({column for column in head if head.count(column) > 1})
    if repeated:
        raise FglauditError(
            f"columns have different names; {nodes} has {shown(repeated[0])} twice; rename one (the"
            " first line names the columns)"
        )
    if name is not None and name not in head:
        raise unknown(f"column of {nodes}", name, head)
    if name is None and set(head) >= _ENDS and not set(head) & set(NAMES):
        raise FglauditError(
            f"the first file has the nodes; {nodes} has columns source and target, as edges have; name the other file"
            " first, or the column of the nodes by --id"
        )
    chosen = name or next((usual for usual in NAMES if usual in head), head[0])
    where = [f"{nodes.name} line {number}" for number, _ in lines]
    rows = [dict(zip(head, line, strict=True)) for _, line in lines]
    names = read_names(row.pop(chosen) for row in rows)
    known = set(names)
    first, pairs = _table(edges)
    if len(first) < 2:
        raise FglauditError(f"a line of edges names two nodes; {edges} has {len(first)} column; add the other end")
    # Tables that databases write begin with an id of the edge, which may well be the name of a node too.
    a, b = (first.index("source"), first.index("target")) if set(first) >= _ENDS else (0, 1)
    listed = [(*read_names((line[a], line[b])), f"{edges.name} line {number}") for number, line in pairs]
    start, end = read_names((first[a], first[b]))
    bare = start in known and end in known
    if bare:  # there is no header: its first line is an edge
        listed.insert(0, (start, end, f"{edges.name} line 1"))
    unused = [f"column {i + 1}" if bare else column for i, column in enumerate(first) if i not in (a, b)]
    return NodeTable(names, rows, [(str(a), str(b), str(c)) for a, b, c in listed], where, unused, chosen)


def _table(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header and the other lines with their numbers; all have as many columns."""
    text = _text_of(path)
    if "\0" in text:
        raise FglauditError(f"a CSV file is text; {path} holds null characters; save it as CSV")
    try:
        separator = csv.Sniffer().sniff(text[:4096].partition("\n")[0], ",;\t").delimiter
    except csv.Error:
        separator = ","
    try:
        lines = [(i, line) for i, line in enumerate(csv.reader(io.StringIO(text), delimiter=separator), 1) if line]
    except csv.Error as error:
        raise FglauditError(f"a CSV file must be one; {path}: {error}; save it as CSV") from error
    if not lines:
        raise FglauditError(f"a CSV file has a header; {path} is empty; write the names of its columns")
    head = read_names(lines[0][1])
    for number, line in lines[1:]:
        if len(line) != len(head):
            raise FglauditError(
                f"every line has as many columns as the first; line {number} of {path} has {len(line)} instead of"
                f" {len(head)}; correct it"
            )
    return head, lines[1:]


def read_json(path: Path) -> NodeTable:
    """Read node-link JSON: ``{"nodes": [{"id": ...}], "links" or "edges": [{"source": ..., "target": ...}]}``."""
    try:
        data = json.loads(_text_of(path))
    except (ValueError, RecursionError) as error:
        raise FglauditError(f"a JSON file must be sound; {path}: {error}; write it again") from error
    listed = data.get("nodes") if isinstance(data, dict) else None
    joined = (data.get("links", data.get("edges"))) if isinstance(data, dict) else None
    if not isinstance(listed, list) or not isinstance(joined, list):
        raise FglauditError(
            f"a graph in JSON has lists nodes and links (or edges), as networkx.node_link_data writes; {path} has"
            f" {shown(sorted(data) if isinstance(data, dict) else type(data).__name__)}; write it so"
        )
    nodes, names = [], []
    for i, node in enumerate(listed):
        if not isinstance(node, dict) or "id" not in node:
            raise FglauditError(f"a node in JSON has an id; nodes[{i}] of {path} is {shown(node)}; add it")
        names.append(str(node["id"]))
        nodes.append({str(key): value for key, value in node.items() if key != "id"})
    edges = []
    for i, edge in enumerate(joined):
        if isinstance(edge, dict) and "source" in edge and "target" in edge:
            edges.append((str(edge["source"]), str(edge["target"]), f"links[{i}]"))
        elif isinstance(edge, list) and len(edge) >= 2:
            edges.append((str(edge[0]), str(edge[1]), f"links[{i}]"))
        else:
            raise FglauditError(
                f"an edge in JSON has source and target; links[{i}] of {path} is {shown(edge)}; add them"
            )
    unused = dict.fromkeys(str(key) for edge in joined if isinstance(edge, dict) for key in edge)
    left = [key for key in unused if key not in {*_ENDS, "key", "id"}]
    return NodeTable(names, nodes, edges, [f"nodes[{i}] of {path.name}" for i in range(len(nodes))], left)


def read_networkx(path: Path) -> NodeTable:
    """Read GraphML or GML."""
    import networkx as nx

    text = _text_of(path)
    try:
        graph = nx.parse_graphml(text) if path.suffix == ".graphml" else nx.parse_gml(text, label="id")
    except Exception as error:  # networkx and the XML parser raise errors of many kinds
        raise FglauditError(
            f"a {path.suffix[1:]} file must be sound; {path}: {type(error).__name__}: {error}; write it again"
        ) from error
    names = [str(name) for name in graph.nodes]
    nodes: Sequence[Mapping[str, Any]] = [dict(graph.nodes[name]) for name in graph.nodes]
    # Names that networkx made of a node's place say nothing.
    kept = [{key: value for key, value in node.items() if key != "label" or not _is_name(nodes, key)} for node in nodes]
    edges = [(str(a), str(b), f"an edge of {path.name}") for a, b in graph.edges()]
    unused = list(dict.fromkeys(str(key) for *_, values in graph.edges(data=True) for key in values if key != "id"))
    return NodeTable(names, kept, edges, [f"node {shown(name)} of {path.name}" for name in names], unused)


def _is_name(nodes: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Whether ``key`` is a different text at every node: GML calls a node's name its label."""
    values = [node.get(key) for node in nodes]
    return len(values) > 2 and all(isinstance(value, str) for value in values) and len(set(values)) == len(values)


def read_data(path: Path) -> Any:
    """Read a ``torch_geometric.data.Data``, or a dictionary of tensors, that ``torch.save`` wrote. Nothing but tensors
    and plain values is loaded: a file cannot run code."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    if not path.is_file():
        raise FglauditError(f"a file to import must exist; there is no file {path}; correct the path")
    containers = [Data, DataEdgeAttr, DataTensorAttr, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage]
    try:
        with torch.serialization.safe_globals(containers):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling refuses in many ways
        refused = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it asks for {refused[1]}" if refused else type(error).__name__
        raise FglauditError(
            f"a .pt file is loaded without running code, so it holds a Data or a dictionary of tensors alone; {path}:"
            f" {why}; save x, edge_index and y with torch.save(dict(...))"
        ) from error
