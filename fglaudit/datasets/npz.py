"""A user's own graph from an ``.npz`` file: the file is read once, compared with its pin, and every rule is checked."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from fglaudit.datasets.npz_archive import Array, memory_limit, read_arrays
from fglaudit.datasets.raw import RawGraph
from fglaudit.errors import FglauditError, shown
from fglaudit.files import limits
from fglaudit.files.user import is_file, read_file, user_path

REQUIRED, MASKS = ("x", "edge_index", "y"), ("train_mask", "val_mask", "test_mask")
CLIENTS = "clients"
KEYS = (*REQUIRED, *MASKS, CLIENTS)
_PER_NODE = ("y", *MASKS, CLIENTS)
_COUNTS = ("num_nodes", "batch", "ptr")
"""What torch-geometric keeps beside the data: nothing is lost with it."""
UNEVEN = 0.8
"""Share of the largest class from which on accuracy says little of the others."""
Integers = NDArray[np.int64]


def load_npz(path: str, sha256: str | None = None) -> RawGraph:
    """Read x [N, F], edge_index [2, E], y [N] and, all or none, boolean masks [N] from ``path``; ``clients`` [N], the
    number of the client that holds each node, may be there too.

    Args:
        sha256: what the file's content must have as its SHA-256; None takes any content.

    Raises:
        FglauditError: the file is missing, corrupt or has another content than ``sha256`` says, an array is missing or
            has the wrong shape or type, features are NaN or infinite as float32, an edge names a node that does not
            exist, labels lie outside of -1 ... classes - 1, masks overlap, name an unlabelled node or leave nothing to
            train on or to test, clients are not numbered 0, 1, ... without a gap.
    """
    file, data = _content(path)
    if sha256 is not None and (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise FglauditError(
            f"the file of an own graph stays the same while a run lasts; {file} has sha256 {found} instead of {sha256};"
            " put the old file back, or start a new run with another --out"
        )
    arrays, names = read_arrays(data, KEYS, str(file))
    raw = checked(arrays, str(file), names)
    return dataclasses.replace(raw, notes=(*raw.notes, *unused_notes(names)))


def checked(arrays: Mapping[str, Array], where: str, names: Collection[str] | None = None) -> RawGraph:
    """Return the graph of x [N, F], edge_index [2, E], y [N], perhaps clients [N] and, all or none, boolean masks [N];
    what has one entry per node may also be a column [N, 1].

    Args:
        where: they are from, for messages.
        names: of all arrays there, for messages.

    Raises:
        FglauditError: as :func:`load_npz`.
    """
    missing = [name for name in REQUIRED if name not in arrays]
    found = shown(sorted(arrays if names is None else names))
    _require(
        not missing,
        f"{where} must hold x, edge_index and y; missing {missing}, found {found}",
        "add the missing arrays",
    )
    features = _features(arrays["x"])
    nodes = len(features)
    one = {name: value[:, 0] for name, value in arrays.items() if name in _PER_NODE and value.shape == (nodes, 1)}
    arrays = {**arrays, **one}  # a column is what it holds
    edge_index, y = arrays["edge_index"], arrays["y"]
    labels = _labels(y, nodes)
    masks = _masks(arrays, labels)
    return RawGraph(
        x=torch.from_numpy(features),
        y=torch.from_numpy(labels),
        edge_index=torch.from_numpy(_edges(edge_index, nodes)),
        train=masks.get("train"),
        val=masks.get("val"),
        test=masks.get("test"),
        clients=checked_clients(arrays[CLIENTS], nodes) if CLIENTS in arrays else None,
        notes=_class_notes(labels),
    )


def unused_notes(names: Iterable[str]) -> tuple[str, ...]:
    """Say which of the arrays or attributes of a graph, by name, are not read: a mask called ``train`` is none."""
    unused = [str(name) for name in names if name not in KEYS and name not in _COUNTS]
    of_edges = [name for name in unused if name.startswith("edge_")]
    others = ", ".join(shown(name) for name in unused if name not in of_edges)
    return (*unused_of_edges(of_edges), *([f"not used: {others}; what is read is {', '.join(KEYS)}"] if others else []))


def unused_of_edges(names: Iterable[str]) -> tuple[str, ...]:
    """Say which attributes of edges are not read, all of them: graphs here have no weights."""
    unused = ", ".join(map(shown, names))
    return (f"not used of edges: {unused}; every edge counts alike",) if unused else ()


def content_digest(path: str) -> str | None:
    """Return the SHA-256 of the file's content; None where there is no file yet."""
    if not is_file(user_path(path, "the path of an own graph")):
        return None
    return hashlib.sha256(_content(path)[1]).hexdigest()


def _content(path: str) -> tuple[Path, bytes]:
    file = user_path(path, "the path of an own graph")
    _require(
        is_file(file),
        f"name: npz reads a file; {file} is none (looked in {file.absolute().parent})",
        "give path: the .npz with x, edge_index and y",
    )
    return file, read_file(file, "the file of an own graph", memory_limit())


def _features(x: Array) -> NDArray[np.float32]:
    _require(
        x.ndim == 2 and x.size > 0, f"x must have shape [nodes, features] and not be empty; got {x.shape}", "reshape x"
    )
    _require(x.dtype.kind in "fiub", f"x must hold numbers; got dtype {x.dtype}", "save x as float32")
    with np.errstate(all="ignore"):  # numbers beyond float32 become infinite and are refused
        features = np.ascontiguousarray(x, dtype=np.float32)
    bad = ~np.isfinite(features).all(axis=1)
    _require(
        not bad.any(),
        f"features must be finite; {bad.sum()} rows have NaN or inf, the first is {bad.argmax()} (as float32)",
        "clean x",
    )
    reach = np.maximum(features.max(axis=0), -features.min(axis=0))
    _require(
        bool(reach.max() <= limits.FEATURE),
        f"features lie between -{limits.FEATURE:g} and {limits.FEATURE:g}, so that their squares can be added; column"
        f" {reach.argmax()} reaches {reach.max():g}",
        "rescale that column",
    )
    return features


def _labels(y: Array, nodes: int) -> Integers:
    _require(
        y.shape == (nodes,),
        f"y must have shape [{nodes}], one label per row of x; got {y.shape}",
        "of one-hot or multi-label rows take a single class, e.g. y.argmax(1)" if y.ndim == 2 else "reshape y",
    )
    _require(
        y.dtype.kind in "iu", f"y must hold integers; got dtype {y.dtype}", "save y as int64 class numbers 0, 1, ..."
    )
    # Compared in their own type: 2^64 - 1 would turn into -1.
    low, high = int(y.min()), int(y.max())
    most = min(nodes, limits.CLASSES) - 1
    _require(low >= -1, f"labels must be >= 0 (-1: unlabelled); got {low}", "renumber y")
    _require(high >= 0, "at least one node must have a label; all are -1", "fill in y")
    only = [label for label in np.unique(y) if label >= 0]
    but = " or -1, which is unlabelled" if low < 0 else ""
    _require(
        len(only) > 1,
        f"models learn to tell classes, at least two; every label is {only[0]}{but}",
        "take the classes from another attribute, or number them in y",
    )
    _require(
        high <= most,
        f"labels are class numbers 0, 1, ... of at most as many classes as nodes, and {limits.CLASSES}; got {high} for"
        f" {nodes} nodes",
        "renumber y",
    )
    return y.astype(np.int64)


def _class_notes(labels: Integers) -> tuple[str, ...]:
    """Say what of the numbers of classes is probably not meant: classes are counted by the largest number."""
    sizes = np.bincount(labels[labels >= 0])
    notes = []
    if (empty := np.flatnonzero(sizes == 0)).size:
        named = ", ".join(map(str, empty[:5])) + (" ..." if empty.size > 5 else "")
        notes.append(
            f"{len(sizes)} classes are counted, by the largest label, and {empty.size} have no node ({named}): number"
            " the classes 0, 1, ... without gaps"
        )
    if (share := sizes.max() / sizes.sum()) >= UNEVEN:
        notes.append(
            f"{share:.1%} of the labelled nodes are of class {sizes.argmax()}: naming it everywhere is as often right,"
            " so read accuracy_balanced, the mean over classes"
        )
    if sizes.max() == 1:
        notes.append("every class has a single node, so nothing can be learned: take the label from another attribute")
    return tuple(notes)


def _edges(edge_index: Array, nodes: int) -> Integers:
    _require(
        edge_index.ndim == 2 and edge_index.shape[0] == 2,
        f"edge_index must have shape [2, edges]; got {edge_index.shape}",
        "transpose it if it is [edges, 2]",
    )
    _require(
        edge_index.dtype.kind in "iu",
        f"edge_index must hold integers; got dtype {edge_index.dtype}",
        "save it as int64",
    )
    named = cast(Integers, edge_index)  # compared in its own type
    outside = named[(named < 0) | (named >= nodes)]
    _require(
        outside.size == 0,
        f"edge_index must name nodes 0 ... {nodes - 1}; got {outside[:1]} and {max(outside.size - 1, 0)} more outside",
        "node ids are row numbers of x, starting at 0",
    )
    return np.ascontiguousarray(edge_index, dtype=np.int64)


def _masks(arrays: Mapping[str, Array], labels: Integers) -> dict[str, torch.Tensor]:
    nodes = len(labels)
    given = [name for name in MASKS if name in arrays]
    if not given:
        return {}
    _require(
        len(given) == 3,
        f"give all of {', '.join(MASKS)} or none; got {', '.join(given)}",
        "add the others or use split: random",
    )
    masks: dict[str, torch.Tensor] = {}
    for name in MASKS:
        mask = arrays[name]
        _require(mask.shape == (nodes,), f"{name} must have shape [{nodes}]; got {mask.shape}", "reshape it")
        _require(mask.dtype.kind == "b", f"{name} must be boolean; got dtype {mask.dtype}", "save it with dtype bool")
        unlabelled = mask.astype(bool) & (labels < 0)
        _require(
            not unlabelled.any(),
            f"{name} may name labelled nodes only; {unlabelled.sum()} of its nodes have label -1, the first is"
            f" {unlabelled.argmax()}",
            "take them out of the mask, or label them",
        )
        _require(
            name == "val_mask" or bool(mask.any()),
            f"{name} must name at least one node; it names none",
            "fill it in, or use split: random without masks",
        )
        masks[name.removesuffix("_mask")] = torch.from_numpy(mask.astype(bool)).unsqueeze(1)
    shared = int((sum(mask.int() for mask in masks.values()) > 1).sum())  # type: ignore[union-attr]
    _require(
        shared == 0, f"train, val and test masks must be disjoint; {shared} nodes are in more than one", "fix the masks"
    )
    return masks


def checked_clients(clients: Array, nodes: int) -> torch.Tensor:
    """Return the client of every node [N]; raises :class:`FglauditError` unless they are 0, 1, ... without a gap."""
    _require(
        clients.shape == (nodes,) and clients.dtype.kind in "iu",
        f"{CLIENTS} must hold {nodes} whole numbers, the client of every row of x; got shape {clients.shape}, dtype"
        f" {clients.dtype}",
        "number the clients 0, 1, ...",
    )
    found = np.unique(clients)
    _require(
        int(found[0]) == 0 and int(found[-1]) == len(found) - 1,
        f"clients are numbered 0, 1, ... without a gap; got {len(found)} of them, {found[0]} to {found[-1]}",
        "renumber them, e.g. by numpy.unique(clients, return_inverse=True)[1]",
    )
    return torch.from_numpy(clients.astype(np.int64))


def _require(holds: bool, message: str, fix: str) -> None:
    if not holds:
        raise FglauditError(f"{message}; {fix}")
