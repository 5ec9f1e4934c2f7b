"""An ``.npz`` of any content ends in the graph that it holds or in one message; memory is not taken for mere claims."""

from __future__ import annotations

import hashlib
import io
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.npz import load_npz
from fglaudit.datasets.npz_archive import read_arrays
from fglaudit.errors import MESSAGE, FglauditError
from fglaudit.files import limits
from fglaudit.suite.entries import dataset_spec

Arrays = dict[str, Any]
NAMES = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
SHARED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def sound(**changes: Any) -> Arrays:
    base: Arrays = {
        "x": np.eye(6, 4, dtype=np.float32),
        "edge_index": np.array([[0, 1, 1, 2], [1, 0, 2, 3]]),
        "y": np.array([0, 1, 1, 0, 2, -1]),
        "train_mask": np.array([1, 1, 0, 0, 0, 0], bool),
        "val_mask": np.array([0, 0, 1, 0, 0, 0], bool),
        "test_mask": np.array([0, 0, 0, 1, 1, 0], bool),
    }
    return {name: array for name, array in (base | changes).items() if array is not None}


def saved(arrays: Arrays, compressed: bool = False) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def outcome(path: Path, data: bytes) -> str:
    """Return the message, empty where the graph is accepted; then it must be what NumPy reads."""
    path.write_bytes(data)
    try:
        raw = load_npz(str(path))
    except FglauditError as error:
        message = str(error)
        assert message.isprintable() and len(message) <= MESSAGE and ";" in message, message
        return message
    with np.load(path, allow_pickle=False) as stored:
        assert np.array_equal(raw.x.numpy(), stored["x"].astype(np.float32))
        assert np.array_equal(raw.y.numpy(), stored["y"])
        assert np.array_equal(raw.edge_index.numpy(), stored["edge_index"])
        for name, mask in (("train_mask", raw.train), ("val_mask", raw.val), ("test_mask", raw.test)):
            assert (mask is None) == (name not in stored.files)
            assert mask is None or np.array_equal(mask.numpy()[:, 0], stored[name])
    assert int(raw.y.max()) < min(len(raw.y), limits.CLASSES) and int(raw.y.min()) >= -1
    assert bool(raw.x.isfinite().all())
    return ""


@SHARED
@given(st.data(), st.booleans())
def test_damaged_bytes(tmp_path: Path, data: st.DataObject, compressed: bool) -> None:
    raw = bytearray(saved(sound(), compressed))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        match data.draw(st.sampled_from(["flip", "cut", "put", "size"])):
            case "flip" if at < len(raw):
                raw[at] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del raw[at : at + data.draw(st.integers(1, 50))]
            case "put":
                raw[at:at] = data.draw(st.binary(max_size=8))
            case _:
                raw[at : at + 4] = data.draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\0\0\0\x80", b"PK\x01\x02"]))
    outcome(tmp_path / "g.npz", bytes(raw))


@SHARED
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    for head in (b"", b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18, b"\x93NUMPY\x01\x00"):
        assert outcome(tmp_path / "g.npz", head + data)


@SHARED
@given(st.data())
def test_arrays_of_any_type_shape_and_values(tmp_path: Path, data: st.DataObject) -> None:
    kinds = st.one_of(
        hnp.integer_dtypes(endianness="?"),
        hnp.unsigned_integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?"),
        hnp.boolean_dtypes(),
        hnp.complex_number_dtypes(),
        hnp.unicode_string_dtypes(max_len=3),
        hnp.datetime64_dtypes(),
        st.just(np.dtype([("a", "<f4")])),
    )
    shapes = st.one_of(
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6), st.sampled_from([(6,), (6, 4), (2, 4)])
    )
    changes = {}
    for name in data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)):
        changes[name] = data.draw(hnp.arrays(data.draw(kinds), data.draw(shapes)))
    outcome(tmp_path / "g.npz", saved(sound(**changes)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": np.array([0, 1, 1, 0, 2, 6])}, "at most as many classes as nodes"),
        ({"y": np.array([0, 1, 1, 0, 2, 2**62])}, "at most as many classes as nodes"),
        ({"y": np.array([0, 1, 1, 0, 2, 2**64 - 1], dtype=np.uint64)}, f"got {2**64 - 1}"),
        (
            {"x": np.zeros((20_000, 1)), "y": np.arange(20_000), **dict.fromkeys(NAMES[3:])},
            f"and {limits.CLASSES}; got 19999",
        ),
        ({"edge_index": np.array([[0], [2**63 + 1]], dtype=np.uint64)}, "must name nodes 0"),
        (
            {"train_mask": np.array([1, 1, 0, 0, 0, 1], bool)},
            "train_mask may name labelled nodes only; 1 .* first is 5",
        ),
        ({"test_mask": np.array([0, 0, 0, 1, 1, 1], bool)}, "test_mask may name labelled nodes only"),
        ({"test_mask": np.zeros(6, bool)}, "test_mask must name at least one node"),
        ({"train_mask": np.zeros(6, bool)}, "train_mask must name at least one node"),
        ({"x": np.full((6, 4), 1e39)}, "6 rows have NaN or inf"),
        ({"x": np.full((6, 4), 1j)}, "must hold numbers"),
    ],
)
def test_rules_of_the_graph(tmp_path: Path, changes: Arrays, words: str) -> None:
    (tmp_path / "g.npz").write_bytes(saved(sound(**changes)))
    with pytest.raises(FglauditError, match=words):
        load_npz(str(tmp_path / "g.npz"))


def test_an_empty_validation_mask_is_allowed_and_flags_are_flags(tmp_path: Path) -> None:
    assert outcome(tmp_path / "g.npz", saved(sound(val_mask=np.zeros(6, bool)))) == ""
    odd = np.array([2, 2, 0, 0, 0, 0], np.uint8).view(bool)  # a flag whose byte is 2
    (tmp_path / "g.npz").write_bytes(saved(sound(train_mask=odd)))
    train = load_npz(str(tmp_path / "g.npz")).train
    assert train is not None and int(train.sum()) == 2


def entry(header: str, values: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    body = header.encode("latin1") + b"\n"
    return b"\x93NUMPY" + version + len(body).to_bytes(2, "little") + body + values


def archive(method: int = zipfile.ZIP_DEFLATED, **entries: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in entries.items():
            file.writestr(f"{name}.npy", data)
    return out.getvalue()


def stated(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "header",
    [
        stated("(4000000000, 4000000000)"),
        stated("(300000, 300000)"),
        stated("(-1, 3)"),
        stated("(True, 3)"),
        stated("(10**9, 10**9)"),
        stated("(3,)", "'|O'"),
        stated("(3,)", "[('a', '|O')]"),
        stated("(2000000000,)", "'|V0'"),
        stated("(1,)", "'<U500000000'"),
        "(" * 2_000,
        "-" * 5_000 + "1",
        "9" * 9_000,
        "{'descr': '<f4'}",
        "",
    ],
)
@pytest.mark.parametrize("real", [0, 24])
def test_claims_of_headers_are_checked_before_memory_is_taken(header: str, real: int) -> None:
    data = archive(x=entry(header, bytes(real)))
    tracemalloc.start()
    try:
        with pytest.raises(FglauditError, match=r"sound \.npz"):
            read_arrays(data, NAMES, "g.npz")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_bombs_and_lying_directories_are_refused_before_memory_is_taken() -> None:
    values = 2**28 + 2**20
    bomb = archive(x=entry(stated(f"({values // 4},)"), bytes(values)))
    assert len(bomb) < 2**20
    lying = bytearray(archive(x=entry(stated("(6,)"), bytes(24))))
    at = lying.rfind(b"PK\x01\x02")
    lying[at + 24 : at + 28] = (2**32 - 2).to_bytes(4, "little")
    many = archive(zipfile.ZIP_STORED, **{f"a{i}": b"" for i in range(1_500)})
    twice = saved(sound()).replace(b"y.npy", b"x.npy")
    for data, words in ((bomb, "zip bomb"), (bytes(lying), "zip bomb"), (many, "entries"), (twice, "2 times")):
        tracemalloc.start()
        try:
            with pytest.raises(FglauditError, match=words):
                read_arrays(data, NAMES, "g.npz")
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()


def test_arrays_beyond_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fglaudit.datasets.npz_archive.memory_limit", lambda: 100)
    with pytest.raises(FglauditError, match=r"claim .* bytes of memory, more than the 100 allowed"):
        read_arrays(saved(sound()), NAMES, "g.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method: int) -> None:
    with pytest.raises(FglauditError, match="compressed in another way"):
        read_arrays(archive(method, x=entry(stated("(6,)"), bytes(24))), NAMES, "g.npz")


# The file is pinned by its content


def test_a_suite_pins_the_content_and_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    path.write_bytes(saved(sound()))
    spec = dataset_spec({"name": "npz", "path": str(path)})
    assert spec.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    spec.check_pin()
    first = spec.load()
    path.write_bytes(saved(sound(), compressed=True))  # even where the arrays are the same
    for read in (spec.load, spec.check_pin):
        with pytest.raises(FglauditError, match="stays the same while a run lasts") as caught:
            read()
        assert str(path) in str(caught.value) and "start a new run" in str(caught.value)
    path.unlink()
    with pytest.raises(FglauditError, match="is none"):
        spec.check_pin()
    assert first.num_nodes == 6


def test_a_pin_in_the_suite_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    path.write_bytes(saved(sound()))
    with pytest.raises(FglauditError, match="stays the same"):
        dataset_spec({"name": "npz", "path": str(path), "sha256": "0" * 64}).load()
    wrong: list[dict[str, Any]] = [{"name": "npz", "path": "x", "sha256": "abc"}, {"name": "cora", "sha256": "0" * 64}]
    for fields in wrong:
        with pytest.raises(FglauditError, match="64 hex digits"):
            DatasetSpec(**fields)
    assert dataset_spec({"name": "npz", "path": str(tmp_path / "none.npz")}).sha256 is None


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "long", "null", "home", "loop", "huge"])
def test_paths_that_are_no_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "g.npz"
    text = str(path)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "long":
            text = "x" * 5_000
        case "null":
            text = "a\0b"
        case "home":
            text = "~nobody-of-this-name/g.npz"
        case "loop":
            path.symlink_to(path)
        case "huge":
            with path.open("wb") as file:
                file.truncate(2**40)
    with pytest.raises(FglauditError, match="; "):
        dataset_spec({"name": "npz", "path": text}).load()
