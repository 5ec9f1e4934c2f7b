"""Mutated ``.npz`` graphs: arrays of wrong types, shapes and values, damaged archives, lying sizes, and bombs."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fglaudit.errors import FglauditError

NAMES = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000, 4000000000), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (100000, 100000), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 3), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1e9,), }",
    "{'descr': '<f4', 'fortran_order': True, 'shape': (5, 3), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': [('a', '<f4'), ('b', '|O')], 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 70 + "), }",
    "{'descr': '<U999999999', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (10**9,), }",
    "{'descr': '<m8[foo]', 'fortran_order': False, 'shape': (3,), }",
    "(" * 3000,
    "[" * 9000,
    "{'descr': '<f4'}",
    "-" * 5000 + "1",
    "9" * 9000,
    "\x00" * 100,
    "",
)


def graph(rng: random.Random) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a sound small graph."""
    draw = np.random.default_rng(rng.randrange(2**32))
    nodes, features, edges = rng.randrange(2, 40), rng.randrange(1, 20), rng.randrange(80)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "x": (draw.random((nodes, features)) < 0.3).astype(np.float32),
        "edge_index": draw.integers(0, nodes, (2, edges)),
        "y": np.concatenate([[0, min(1, nodes - 1)], draw.integers(-1, min(nodes, 4), max(nodes - 2, 0))]).astype(
            np.int64
        ),
    }
    if rng.random() < 0.5:
        role = draw.integers(0, 4, nodes)
        role[:2] = (0, 2)
        for number, name in enumerate(NAMES[3:]):
            arrays[name] = (role == number) & (arrays["y"] >= 0)
    return arrays


def mutated(rng: random.Random) -> bytes:
    """Return the bytes of one mutated ``.npz``."""
    arrays = graph(rng)
    what = rng.random()
    if what < 0.45:
        for _ in range(rng.choice((1, 1, 2))):
            _change(rng, arrays)
        return _saved(rng, arrays)
    if what < 0.75:
        return _damaged(rng, _saved(rng, arrays))
    return _forged(rng, arrays)


def _saved(rng: random.Random, arrays: dict[str, np.ndarray[Any, Any]]) -> bytes:
    out = io.BytesIO()
    save: Any = np.savez if rng.random() < 0.5 else np.savez_compressed
    save(out, **arrays)
    return out.getvalue()


def _change(rng: random.Random, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    name = rng.choice([n for n in NAMES if n in arrays] or ["x"])
    array = arrays.get(name, np.zeros(3))
    what = rng.randrange(8)
    if what == 0:
        kinds = ("f2", "f8", "g", "c8", "i1", "u1", "u8", ">i4", ">f8", "U3", "S3", "M8[s]", "m8[s]", "?", "O", "V4")
        try:
            arrays[name] = array.astype(rng.choice(kinds))
        except (TypeError, ValueError):
            arrays[name] = np.array(["a"])
    elif what == 1:
        shapes: tuple[Any, ...] = (
            array.T,
            array.ravel(),
            array[None],
            array[:0],
            array[..., None],
            array[:1],
            np.array(5),
            array[::2],
        )
        arrays[name] = rng.choice(shapes)
    elif what == 2 and array.size and array.dtype.kind in "fiu":
        values = (
            (-1, -2, 10**6, 2**31, 2**62, 127, 0)
            if array.dtype.kind != "f"
            else (np.nan, np.inf, -np.inf, 1e39, 1e-45, -1)
        )
        flat = array.astype(np.float64 if array.dtype.kind == "f" else np.int64).ravel()
        flat[rng.randrange(flat.size)] = rng.choice(values)
        arrays[name] = flat.reshape(array.shape)
    elif what == 3:
        arrays["y"] = np.full(_rows(arrays), rng.choice((-1, 0, 5, 2**62)))
    elif what == 4:
        arrays["y"] = arrays.get("y", array).astype(np.uint64) + np.uint64(rng.choice((0, 2**63, 2**64 - 3)))
    elif what == 5:
        arrays.pop(name, None)
    elif what == 6:
        for mask in NAMES[3:]:
            arrays[mask] = np.full(rng.choice((_rows(arrays), 3, 0)), rng.random() < 0.5)
    else:
        arrays[rng.choice(NAMES)] = rng.choice(
            (np.zeros((0, 3)), np.ones((3, 0)), np.array([None]), np.array("x"), np.zeros(3, "?"))
        )


def _rows(arrays: dict[str, np.ndarray[Any, Any]]) -> int:
    shape = arrays["x"].shape if "x" in arrays else ()
    return shape[0] if shape else 3


def _damaged(rng: random.Random, data: bytes) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 10, 100))):
        if not raw:
            break
        at = rng.choice(
            (rng.randrange(len(raw)), max(len(raw) - 1 - rng.randrange(300), 0))
        )  # zip's directory is at the end
        what = rng.randrange(5)
        if what == 0:
            raw[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            raw[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(9))
        elif what == 2:
            raw[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1, rng.randrange(2**32))))
        elif what == 3 and rng.random() < 0.2:
            del raw[at:]
        elif rng.random() < 0.2:
            raw[:0] = rng.randbytes(rng.randrange(50))
    return bytes(raw)


def _forged(rng: random.Random, arrays: dict[str, np.ndarray[Any, Any]]) -> bytes:
    """Return an archive whose entry for one array is hostile and whose checksums are right."""
    name = rng.choice(NAMES)
    out = io.BytesIO()
    method = rng.choice(
        (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    )
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # doubled names are meant
        for key, array in arrays.items():
            if key != name:
                plain = io.BytesIO()
                np.save(plain, array)
                archive.writestr(f"{key}.npy", plain.getvalue())
        entry = _entry(rng)
        for _ in range(rng.choice((1, 1, 1, 2))):
            archive.writestr(f"{name}.npy", entry)
        if rng.random() < 0.1:
            for extra in range(rng.choice((3, 2000))):
                archive.writestr(f"extra{extra}", b"")
    data = out.getvalue()
    if rng.random() < 0.3:  # the directory claims other sizes than the entries have
        at = data.rfind(b"PK\x01\x02")
        data = (
            data[: at + 20]
            + struct.pack("<II", rng.choice((len(entry), 10, 2**31)), rng.choice((2**32 - 2, 2**31, 0)))
            + data[at + 28 :]
        )
    return data


def _entry(rng: random.Random) -> bytes:
    what = rng.randrange(4)
    if what == 0:
        return rng.randbytes(rng.randrange(200))
    if what == 1:  # a bomb: zeros that deflate a thousandfold
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (8192, 2048), }"
        return _npy(header, (1, 0)) + bytes(2**26)
    if what == 2:
        import pickle

        return _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", (1, 0)) + pickle.dumps([zlib.crc32])
    return _npy(rng.choice(HEADERS), rng.choice(((1, 0), (1, 0), (2, 0), (3, 0), (9, 9)))) + bytes(
        rng.choice((0, 12, 60, 4096))
    )


def _npy(header: str, version: tuple[int, int]) -> bytes:
    body = header.encode("latin1") + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(body)) + body


def check(path: Path) -> None:
    """What must end in a value or in one message: load the graph, print its facts, split it over clients.

    A graph that is accepted must be the one that NumPy reads from the file.

    Raises:
        FglauditError: the file is refused.
        AssertionError: another graph than the file's was accepted.
    """
    from fglaudit.cli import main
    from fglaudit.datasets import DatasetSpec
    from fglaudit.partition import PartitionSpec
    from fglaudit.rng import derive

    def flat(column: Any) -> Any:
        """Return [N, 1] as [N], which stands for it."""
        return column[:, 0] if column.shape == (len(column), 1) else column

    spec = DatasetSpec("npz", path=str(path)).pinned()
    graph = spec.load()
    with np.load(path, allow_pickle=False) as stored:
        assert np.array_equal(graph.x.numpy(), stored["x"].astype(np.float32))
        assert np.array_equal(graph.y.numpy(), flat(stored["y"]))
        assert graph.train is None or np.array_equal(graph.train.numpy(), flat(stored["train_mask"]))
        wanted = {(int(a), int(b)) for a, b in stored["edge_index"].T if a != b}
    found = set(zip(*graph.edge_index.tolist(), strict=True))
    assert found == wanted | {(b, a) for a, b in wanted}
    try:
        main(["data", "facts", str(path)])
    except SystemExit as done:
        assert not done.code, "accepted, then refused"
    for scheme in ("dirichlet", "metis", "louvain", "per-node"):
        partition = PartitionSpec(scheme, clients=2, beta=1.0 if scheme == "dirichlet" else None)
        for split in ("random", "public"):
            try:
                partition.apply(graph, DatasetSpec("npz", path=str(path), split=split), derive(0, "partition"))
            except FglauditError:  # becomes a failed row of its cells
                continue
