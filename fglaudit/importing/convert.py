"""From files to a checked ``.npz``, with a line for everything that was decided on the way."""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from fglaudit.datasets.facts import dataset_facts
from fglaudit.datasets.npz import CLIENTS, KEYS, MASKS, checked
from fglaudit.datasets.npz_archive import Array
from fglaudit.datasets.raw import scale_notes, to_graph
from fglaudit.errors import FglauditError, counted, shown, unknown
from fglaudit.files.own import write_atomic
from fglaudit.files.user import user_path
from fglaudit.importing.files import FORMATS, read_csv, read_data, read_json, read_networkx
from fglaudit.importing.node_table import Choice, arrays_of, edge_notes


def import_graph(
    sources: Sequence[str | Path], out: str | Path, choice: Choice, name: str | None = None, *, replace: bool = False
) -> list[str]:
    """Read a graph, check it and write it; return what was read and done, a line each.

    Args:
        sources: two CSV files (nodes, edges), or one file of another format of ``FORMATS``.
        out: the ``.npz`` to write.
        name: of the column that names nodes, for CSV.
        replace: whether ``out`` may exist.

    Raises:
        FglauditError: files, values or the graph break a rule.
    """
    target = user_path(out, "the file to write")
    if target.suffix != ".npz":
        example = target.with_suffix(".npz") if target.name else "my_graph.npz"
        raise FglauditError(f"a graph is written as .npz; got {shown(str(out))}; write -o {example}")
    if target.exists() and not replace:
        raise FglauditError(f"files are not written over; {target} exists; use another -o, or --replace")
    if not target.parent.is_dir():
        raise FglauditError(f"the folder of -o must exist; there is no {target.parent}; make it")
    paths = [user_path(source, "a file to import") for source in sources]
    arrays, notes = _arrays(paths, choice, name)
    raw = checked(arrays, str(paths[0]))
    graph, _ = to_graph(raw, target.stem, 0)
    facts, edges = dataset_facts(graph), graph.edge_index.shape[1] // 2
    notes += [*raw.notes, *scale_notes(graph.x)]
    notes += edge_notes(arrays["edge_index"], graph.num_nodes)
    kept: dict[str, Array] = {"x": graph.x.numpy(), "y": graph.y.numpy(), "edge_index": graph.edge_index.numpy()}
    for key, mask in zip(MASKS, (graph.train, graph.val, graph.test), strict=True):
        if mask is not None:
            kept[key] = mask.numpy()
    own = ""
    if graph.clients is not None:
        kept[CLIENTS] = graph.clients.numpy()
        own = f"its own clients: partitions: [{{scheme: given, clients: {graph.num_clients}}}]"
    data = io.BytesIO()
    np.savez(data, **kept)  # type: ignore[arg-type]
    write_atomic(target, data.getvalue())
    masked = "train_mask" in kept
    split = "masks for train, val and test" if masked else "no masks: use split: random in a suite"
    return [
        f"{target}: {facts['nodes']} nodes, {counted(edges, 'undirected edge')},"
        f" {counted(graph.x.shape[1], 'feature')} ({facts['feature_kind']}), {facts['classes']} classes; {split}",
        *(f"note: {note}" for note in notes),
        f"use it: fglaudit run SUITE --dataset {shlex.quote(str(target))}, or datasets:"
        f" [{_entry(target.name, masked)}] in a suite beside it",
        *([own] if own else []),
    ]


def _entry(name: str, masked: bool) -> str:
    """Return the data set as a suite names it, so that it runs when it is pasted."""
    entry: dict[str, str] = {"name": "npz", "path": name, **({} if masked else {"split": "random"})}
    return yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10**6).strip()


def _arrays(paths: Sequence[Path], choice: Choice, name: str | None) -> tuple[dict[str, Array], list[str]]:
    kinds = [path.suffix.lower() for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind not in FORMATS:
            raise FglauditError(f"{path}: {unknown('format', kind or path.name, FORMATS)}")
    if ".csv" in kinds:
        if kinds != [".csv", ".csv"]:
            raise FglauditError(
                f"CSV takes two files, nodes and edges; got {', '.join(map(str, paths))}; write e.g. fglaudit import"
                " nodes.csv edges.csv -o my_graph.npz"
            )
        return arrays_of(read_csv(paths[0], paths[1], name), choice)
    if len(paths) != 1:
        raise FglauditError(f"{kinds[0]} is one file with nodes and edges; got {len(paths)} files; name one")
    if kinds[0] == ".pt":
        return _of_data(read_data(paths[0]), paths[0])
    return arrays_of(read_json(paths[0]) if kinds[0] == ".json" else read_networkx(paths[0]), choice)


def _of_data(data: Any, path: Path) -> tuple[dict[str, Array], list[str]]:
    held = data if isinstance(data, Mapping) else {key: getattr(data, key, None) for key in KEYS}
    found = {key: value for key, value in held.items() if key in KEYS and value is not None}
    if odd := [key for key, value in found.items() if not isinstance(value, torch.Tensor)]:
        raise FglauditError(f"x, edge_index, y, masks and clients are tensors; {odd[0]} of {path} is none; convert it")
    notes = []
    stored: Any = data if isinstance(data, Mapping) else getattr(data, "keys", list)()
    if unused := [key for key in stored if str(key).startswith("edge_") and key != "edge_index"]:
        notes.append(f"not used of edges: {', '.join(map(shown, unused))}; every edge counts alike")
    for key in MASKS:
        if key in found and found[key].dim() == 2:
            notes.append(f"{key}: the first of {found[key].shape[1]} splits is used")
            found[key] = found[key][:, 0]
    if "y" in found and found["y"].dim() == 2 and found["y"].shape[1] == 1:
        found["y"] = found["y"].squeeze(1)
    if left := sorted(set(MASKS) - set(found)):
        if len(left) < len(MASKS):
            notes.append(f"masks left out, as {', '.join(left)} is missing")
        found = {key: value for key, value in found.items() if key not in MASKS}
    return {key: value.to_dense().numpy() for key, value in found.items()}, notes
