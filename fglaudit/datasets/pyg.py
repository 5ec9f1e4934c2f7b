"""Public data sets through torch-geometric's own readers.

The classes write ``processed/`` next to ``raw/``. Therefore they run in a temporary folder with links to the raw files,
and their result is stored as one safetensors file in the user's cache, named after the content of the raw files: a
changed root never uses an old cache, and a killed process leaves no half-written one. The classes cannot download here:
their ``download`` is replaced by an error.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fglaudit.datasets.catalog import PYG_SOURCES, PygSource
from fglaudit.datasets.raw import RawGraph
from fglaudit.datasets.root import cache_folder, content_key, find_root, require_files
from fglaudit.errors import FglauditError

MASKS = ("train", "val", "test")


def load_pyg(name: str, root: str | None) -> RawGraph:
    """Return data set ``name`` from the raw files under ``root``.

    Raises:
        FglauditError: files are missing, do not match the root's ``SHA256SUMS``, cannot be parsed, or give the wrong
            counts.
    """
    source = PYG_SOURCES[name]
    base = find_root(root, name)
    raw_folder = base / source.folder / source.raw
    paths = require_files(name, base, raw_folder, source.files)
    cached = cache_folder() / f"{name}-{content_key(name, base, paths)}.safetensors"
    if cached.is_file():
        try:
            return _read(cached)
        except SafetensorError:
            cached.unlink(missing_ok=True)  # damaged on disk; derived data, computed again below
    try:
        raw = _parse(source, paths)
    except (FglauditError, MemoryError):
        raise
    except Exception as error:  # a corrupt pickle can raise anything
        raise FglauditError(
            f"raw files of {name} must be readable; {raw_folder} holds a corrupt one ({type(error).__name__}: {error});"
            f" delete it and run: fglaudit data fetch {name} --root {base}"
        ) from error
    _check_counts(name, source, raw, raw_folder)
    _write(raw, cached)
    return raw


def offline_class(class_name: str) -> Any:
    """Return the torch-geometric data set class with downloads turned into an error."""
    import torch_geometric.datasets

    def refuse(self: Any) -> None:
        raise FglauditError(
            f"{class_name} found no raw files and may not download here; run: fglaudit data fetch NAME --root DIR"
        )

    return type(class_name, (getattr(torch_geometric.datasets, class_name),), {"download": refuse})


def _parse(source: PygSource, paths: list[Path]) -> RawGraph:
    with tempfile.TemporaryDirectory(prefix="parse-", dir=cache_folder()) as folder:
        raw_folder = Path(folder) / source.raw
        raw_folder.mkdir(parents=True)
        for path in paths:
            link_or_copy(path, raw_folder / path.name)
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():  # "Processing...", "Done!"
            warnings.simplefilter("ignore")
            data = source.make(offline_class(source.class_name), folder)[0]
    masks = [getattr(data, f"{mask}_mask", None) for mask in MASKS]
    splits = max((mask.shape[1] for mask in masks if mask is not None and mask.dim() == 2), default=1)
    train, val, test = (
        None if mask is None else mask.bool().reshape(len(mask), -1).expand(-1, splits) for mask in masks
    )
    return RawGraph(x=data.x.float(), y=data.y.long(), edge_index=data.edge_index, train=train, val=val, test=test)


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` show the file ``source``; copies where the system has no symbolic links."""
    try:
        target.symlink_to(source.resolve())
    except OSError:
        target.write_bytes(source.read_bytes())


def _check_counts(name: str, source: PygSource, raw: RawGraph, folder: Path) -> None:
    edges = raw.edge_index.shape[1]
    masks = (raw.train, raw.val, raw.test)
    split = tuple(0 if mask is None else int(mask[:, 0].sum().item()) for mask in masks)
    got = (raw.x.shape[0], edges, raw.x.shape[1], int(raw.y.max().item()) + 1, split)
    expected = (source.nodes, source.edges or edges, source.features, source.classes, source.split or split)
    if got != expected:
        raise FglauditError(
            f"{name} has (nodes, edges, features, classes, split) = {expected}; the raw files in {folder} give {got}: a"
            f" file is cut short or altered; delete them and run: fglaudit data fetch {name} --root DIR"
        )


def _read(path: Path) -> RawGraph:
    tensors = load_file(path)
    return RawGraph(**tensors)


def _write(raw: RawGraph, path: Path) -> None:
    tensors: dict[str, torch.Tensor] = {"x": raw.x, "y": raw.y, "edge_index": raw.edge_index}
    tensors.update({mask: value for mask in MASKS if (value := getattr(raw, mask)) is not None})
    handle, partial = tempfile.mkstemp(prefix="partial-", dir=path.parent)
    os.close(handle)
    try:
        save_file({key: value.contiguous() for key, value in tensors.items()}, partial)
        Path(partial).replace(path)
    finally:
        Path(partial).unlink(missing_ok=True)
