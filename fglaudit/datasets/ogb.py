"""Open Graph Benchmark node sets from their published CSV folders.

The files are read directly: the benchmark's own package stores pickled copies next to them, asks on the terminal before
it downloads, and is not needed for reading.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fglaudit.datasets.catalog import OGB_SOURCES, OGB_SPLITS, OgbSource, ogb_files
from fglaudit.datasets.raw import RawGraph
from fglaudit.datasets.root import find_root
from fglaudit.errors import FglauditError
from fglaudit.files import limits


def load_ogb(name: str, root: str | None) -> RawGraph:
    """Return ``ogbn-arxiv`` or ``ogbn-products`` with its public split.

    Raises:
        FglauditError: files are missing, unreadable, or give the wrong counts.
    """
    source = OGB_SOURCES[name]
    folder = find_root(root, name) / source.folder
    missing = [file for file in ogb_files(name) if not (folder / file).is_file()]
    if missing:
        raise FglauditError(
            f"{name} needs its CSV files in {folder}; missing: {', '.join(missing)}; "
            f"unpack {source.url} there (the folder that holds raw/ and split/), or give --root DIR"
        )
    try:
        return _read(folder, source)
    except FglauditError:
        raise
    except Exception as error:  # gzip, zlib and pandas raise many kinds at damaged bytes
        raise FglauditError(
            f"CSV files of {name} must be readable; in {folder}: {type(error).__name__}: {error}; unpack {source.url}"
            " again"
        ) from error


def _read(folder: Path, source: OgbSource) -> RawGraph:
    x = _table(folder / "raw/node-feat.csv.gz", np.float32, source.nodes)
    y = _table(folder / "raw/node-label.csv.gz", np.int64, source.nodes).reshape(-1)
    edge_index = _table(folder / "raw/edge.csv.gz", np.int64, limits.SIZES["edges"]).T
    ids = {
        mask: _table(folder / f"split/{source.split}/{part}.csv.gz", np.int64, source.nodes).reshape(-1)
        for mask, part in OGB_SPLITS.items()
    }
    got, expected = (*x.shape, int(y.max()) + 1), (source.nodes, source.features, source.classes)
    named = np.concatenate([edge_index.reshape(-1), *ids.values()])
    if (
        got != expected
        or len(y) != len(x)
        or len(edge_index) != 2
        or named.min() < 0
        or named.max() >= len(x)
        or y.min() < -1
        or not np.isfinite(x).all()
    ):
        raise FglauditError(
            f"the files have (nodes, features, classes) = {expected}, finite features, a label per node, and name no"
            f" other nodes; those in {folder} give {got}, {len(y)} labels and node ids {named.min()} ... {named.max()};"
            f" unpack {source.url} again"
        )
    masks = {mask: torch.zeros(len(x), 1, dtype=torch.bool) for mask in OGB_SPLITS}
    for mask, nodes in ids.items():
        masks[mask][torch.from_numpy(nodes)] = True
    return RawGraph(
        torch.from_numpy(x),
        torch.from_numpy(y),
        torch.from_numpy(np.ascontiguousarray(edge_index)),
        masks["train"],
        masks["val"],
        masks["test"],
    )


def _table(path: Path, dtype: type[np.generic], most: int) -> Any:
    """Return a table of numbers; of more than ``most`` rows one too many is read, which the counts then show."""
    import pandas as pd  # a quarter of a second, which few processes need

    frame = pd.read_csv(path, header=None, compression="gzip", dtype=dtype, nrows=most + 1)
    return frame.to_numpy(dtype=dtype, copy=True)
