"""A user's own graph from an ``.npz`` file, read without unpickling."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fglaudit.datasets.raw import RawGraph
from fglaudit.errors import FglauditError

Arrays = dict[str, NDArray[np.generic]]
REQUIRED, MASKS = ("x", "edge_index", "y"), ("train_mask", "val_mask", "test_mask")


def load_npz(path: str) -> RawGraph:
    """Read x [N, F], edge_index [2, E], y [N] and, all or none, boolean masks [N] from ``path``.

    Raises:
        FglauditError: the file is missing or corrupt, an array is missing or has the wrong shape or type, features are
            NaN or infinite, an edge names a node that does not exist, a label is below -1, or masks overlap.
    """
    arrays = _read(Path(path).expanduser())
    x, edge_index, y = (arrays[name] for name in REQUIRED)
    _require(
        x.ndim == 2 and x.size > 0, f"x must have shape [nodes, features] and not be empty; got {x.shape}", "reshape x"
    )
    _require(x.dtype.kind in "fiub", f"x must hold numbers; got dtype {x.dtype}", "save x as float32")
    nodes = x.shape[0]
    bad = ~np.isfinite(x.astype(np.float32)).all(axis=1)
    _require(
        not bad.any(),
        f"features must be finite; {bad.sum()} rows have NaN or inf, the first is {bad.argmax()}",
        "clean x",
    )
    _require(y.shape == (nodes,), f"y must have shape [{nodes}], one label per row of x; got {y.shape}", "reshape y")
    _require(
        y.dtype.kind in "iu", f"y must hold integers; got dtype {y.dtype}", "save y as int64 class numbers 0, 1, ..."
    )
    _require(
        bool((y.astype(np.int64) >= -1).all()), f"labels must be >= 0 (-1: unlabelled); got {y.min()}", "renumber y"
    )
    _require(bool((y.astype(np.int64) >= 0).any()), "at least one node must have a label; all are -1", "fill in y")
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
    edges = edge_index.astype(np.int64)
    outside = edges[(edges < 0) | (edges >= nodes)]
    _require(
        outside.size == 0,
        f"edge_index must name nodes 0 ... {nodes - 1}; got {outside[:1]} and {max(outside.size - 1, 0)} more outside",
        "node ids are row numbers of x, starting at 0",
    )
    return RawGraph(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy(y.astype(np.int64)),
        edge_index=torch.from_numpy(edges),
        **_masks(arrays, nodes),
    )


def _read(path: Path) -> Arrays:
    _require(path.is_file(), f"name: npz reads a file; {path} is none", "give path: the .npz with x, edge_index and y")
    try:
        opened = np.load(path, allow_pickle=False)
        if isinstance(opened, np.ndarray):
            raise ValueError("it is a single .npy array")
        with opened as stored:
            arrays = {name: stored[name] for name in (*REQUIRED, *MASKS) if name in stored.files}
            names = sorted(stored.files)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise FglauditError(
            f"a graph is read from a sound .npz without pickled objects; {path}: {error}; "
            "write it with numpy.savez(path, x=..., edge_index=..., y=...)"
        ) from error
    missing = [name for name in REQUIRED if name not in arrays]
    _require(
        not missing, f"{path} must hold x, edge_index and y; missing {missing}, found {names}", "add the missing arrays"
    )
    return arrays


def _masks(arrays: Arrays, nodes: int) -> dict[str, torch.Tensor]:
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
        masks[name.removesuffix("_mask")] = torch.from_numpy(mask.astype(bool)).unsqueeze(1)
    shared = int((sum(mask.int() for mask in masks.values()) > 1).sum())  # type: ignore[union-attr]
    _require(
        shared == 0, f"train, val and test masks must be disjoint; {shared} nodes are in more than one", "fix the masks"
    )
    return masks


def _require(holds: bool, message: str, fix: str) -> None:
    if not holds:
        raise FglauditError(f"{message}; {fix}")
