"""Public data sets, parsed once and kept as tensors.

torch-geometric's classes write ``processed/`` next to ``raw/``. Therefore they run on a copy in a temporary folder, and
their result is stored as one safetensors file in the user's cache, named after the content of the raw files: a changed
root never uses an old cache, and a killed process leaves no half-written one.

Nothing is parsed before its SHA-256 is known. The published files are parsed here; any others in a child process that
runs no code of theirs (:mod:`fglaudit.datasets.parse_child`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fglaudit.datasets import parse_child
from fglaudit.datasets.catalog import PYG_SOURCES, PygSource
from fglaudit.datasets.pyg_parse import parse, tensors_of
from fglaudit.datasets.raw import RawGraph
from fglaudit.datasets.root import RawFiles, cache_folder, checked_files, find_root, require_files, sha256
from fglaudit.errors import FglauditError
from fglaudit.files.own import reason


class _DamagedError(Exception):
    """A raw file is not what its name says."""


def load_pyg(name: str, root: str | None) -> RawGraph:
    """Return data set ``name`` from the raw files under ``root``.

    Raises:
        FglauditError: files are missing, match neither the published sums nor the root's ``SHA256SUMS``, cannot be
            parsed, or give the wrong counts.
    """
    source = PYG_SOURCES[name]
    base = find_root(root, name)
    raw_folder = base / source.folder / source.raw
    files = checked_files(name, base, require_files(name, base, raw_folder, source.files))
    cached = cache_folder() / f"{name}-{files.key}.safetensors"
    raw = _read(cached)
    if raw is None:
        try:
            raw = _parse(name, source, files)
        except (FglauditError, MemoryError):
            raise
        except Exception as error:
            of_the_disk = isinstance(error, OSError) and error.errno is not None
            if files.published or of_the_disk:  # the files are not to blame
                raise FglauditError(
                    f"{name} is parsed in the cache folder, which must be writable; {cached.parent}: {reason(error)};"
                    " make it so, or set FGLAUDIT_CACHE to a folder of yours"
                ) from error
            damage = str(error) if isinstance(error, _DamagedError) else f"{type(error).__name__}: {error}"
            raise FglauditError(
                f"raw files of {name} must be readable; {raw_folder} holds a corrupt one ({damage});"
                f" delete it and run: fglaudit data fetch {name} --root {base}"
            ) from error
        _check_counts(name, source, raw, raw_folder)
        _write(raw, cached)
    return dataclasses.replace(raw, notes=files.notes)


def _parse(name: str, source: PygSource, files: RawFiles) -> RawGraph:
    """Parse copies of the raw files, so that what is parsed is what was compared."""
    with tempfile.TemporaryDirectory(prefix="parse-", dir=cache_folder()) as folder:
        raw_folder = Path(folder) / source.raw
        raw_folder.mkdir(parents=True)
        for path, digest in files.digests.items():
            copy = raw_folder / path.name
            copy.write_bytes(path.read_bytes())
            if sha256(copy) != digest:
                raise FglauditError(f"raw files stay the same while they are read; {path} has changed; start again")
        return parse(source, Path(folder)) if files.published else _parse_in_child(name, folder)


def _parse_in_child(name: str, folder: str) -> RawGraph:
    package = Path(parse_child.__file__).parents[2]
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            # -P: modules are not looked for in the working directory.
            [sys.executable, "-P", "-m", parse_child.__name__, name, folder],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=parse_child.SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _DamagedError(f"parsing took more than {parse_child.SECONDS} s") from error
    if done.returncode < 0:
        raise _DamagedError(f"the parser crashed with signal {-done.returncode}")
    if done.returncode:
        raise _DamagedError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    raw = _tensors(Path(folder) / parse_child.RESULT)[0]
    nodes = raw.x.shape[0]
    sound = raw.edge_index.numel() == 0 or (int(raw.edge_index.min()) >= 0 and int(raw.edge_index.max()) < nodes)
    if not (sound and int(raw.y.min()) >= -1 and bool(raw.x.isfinite().all())):
        raise _DamagedError("features must be finite, labels at least -1, and edges must name nodes that exist")
    return raw


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


def _tensors(path: Path) -> tuple[RawGraph, dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        # Copies: tensors of a mapped file would change with the file, after their digest was compared.
        return RawGraph(**{name: file.get_tensor(name).clone() for name in file.keys()}), file.metadata() or {}  # noqa: SIM118


def _read(path: Path) -> RawGraph | None:
    """Return what the cache holds; None where it holds nothing, or what it holds was damaged since it was written."""
    try:
        raw, metadata = _tensors(path)
    except Exception:  # derived data: whatever is wrong with it, it is computed again
        return None
    return raw if metadata.get("digest") == _digest(tensors_of(raw)) else None


def _write(raw: RawGraph, path: Path) -> None:
    tensors = tensors_of(raw)
    handle, partial = tempfile.mkstemp(prefix="partial-", dir=path.parent)
    os.close(handle)
    try:
        save_file(tensors, partial, metadata={"digest": _digest(tensors)})
        Path(partial).replace(path)
    except OSError as error:
        raise FglauditError(
            f"the cache folder must be writable; {path}: {reason(error)}; set FGLAUDIT_CACHE to a folder of yours"
        ) from error
    finally:
        Path(partial).unlink(missing_ok=True)


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    content = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        content.update(json.dumps([name, list(tensor.shape), str(tensor.dtype)]).encode())
        content.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return content.hexdigest()
