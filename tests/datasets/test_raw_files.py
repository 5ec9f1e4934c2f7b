"""Raw public files: nothing is parsed before its sum is known, and files of unknown origin run no code."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fglaudit.datasets.catalog as catalog
from fglaudit.datasets import DatasetSpec, pyg
from fglaudit.datasets.published import PUBLISHED
from fglaudit.datasets.root import CHECKSUMS, read_checksums, sha256
from fglaudit.errors import MESSAGE, FglauditError

ROOT = Path(os.environ.get("FGLAUDIT_DATA") or "../shared/data").resolve()
CORA = Path("planetoid/Cora/raw")


class Evil:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGLAUDIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with Cora's eight files, or with empty files of their names where the real ones are not at hand."""
    folder = tmp_path / "root" / CORA
    folder.mkdir(parents=True)
    for name in catalog.PYG_SOURCES["cora"].files:
        if (ROOT / CORA / name).is_file():
            shutil.copy(ROOT / CORA / name, folder / name)
            (folder / name).chmod(0o644)
        else:
            (folder / name).write_bytes(b"")
    return tmp_path / "root"


def need_cora() -> None:
    if not (ROOT / CORA).is_dir():
        pytest.skip(f"cora is not under the data root {ROOT}")


def list_sums(root: Path) -> None:
    """State that the files are meant to be as they are."""
    lines = [f"{sha256(path)}  {path.relative_to(root)}" for path in sorted((root / CORA).iterdir())]
    (root / CHECKSUMS).write_text("\n".join(lines) + "\n")


def no_parser(*_: Any) -> Any:
    raise AssertionError("something was parsed")


def test_the_built_in_sums_are_those_of_the_files_at_hand() -> None:
    here = {place: ROOT / place for place in PUBLISHED if (ROOT / place).is_file()}
    if not here:
        pytest.skip(f"no raw files under {ROOT}")
    assert {place: sha256(path) for place, path in here.items()} == {place: PUBLISHED[place] for place in here}


def test_every_pickle_and_every_set_with_sums_is_covered() -> None:
    for name in ("cora", "citeseer", "pubmed", "computers", "photo", "chameleon", "squirrel"):
        source = catalog.PYG_SOURCES[name]
        assert all(f"{source.folder}/{source.raw}/{file}" in PUBLISHED for file in source.files)
    assert len(PUBLISHED) == 50 and all(len(digest) == 64 for digest in PUBLISHED.values())


@pytest.mark.parametrize("file", catalog.PYG_SOURCES["cora"].files)
def test_a_pickle_put_in_place_of_a_raw_file_is_not_run(root: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = root / "ran"
    (root / CORA / file).write_bytes(pickle.dumps(Evil(marker)))
    monkeypatch.setattr(pyg, "parse", no_parser)
    monkeypatch.setattr(pyg, "_parse_in_child", no_parser)
    with pytest.raises(FglauditError, match=r"raw files must match the published files; .* is corrupt"):
        DatasetSpec("cora", root=str(root)).load()
    assert not marker.exists()


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_changed_bit_is_noticed_before_parsing(root: Path, data: st.DataObject) -> None:
    need_cora()
    file = root / CORA / data.draw(st.sampled_from(catalog.PYG_SOURCES["cora"].files))
    whole = file.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pyg, "parse", no_parser)
        try:
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :])
            with pytest.raises(FglauditError, match=f"{file.name} is corrupt"):
                DatasetSpec("cora", root=str(root)).load()
        finally:
            file.write_bytes(whole)


def test_a_listed_pickle_is_parsed_without_running_it(root: Path) -> None:
    marker = root / "ran"
    (root / CORA / "ind.cora.x").write_bytes(pickle.dumps(Evil(marker)))
    list_sums(root)
    with pytest.raises(FglauditError, match="a raw file may hold arrays only; it names pathlib") as caught:
        DatasetSpec("cora", root=str(root)).load()
    assert not marker.exists() and "fglaudit data fetch cora" in str(caught.value)


def test_a_version_of_ones_own_loads_and_says_so(root: Path) -> None:
    need_cora()
    graph = root / CORA / "ind.cora.graph"
    published = DatasetSpec("cora", root=str(root)).load()
    with graph.open("rb") as file:
        neighbours = pickle.load(file, encoding="latin1")
    graph.write_bytes(pickle.dumps(neighbours, protocol=4))
    with pytest.raises(FglauditError, match="must match the published files"):
        DatasetSpec("cora", root=str(root)).load()
    list_sums(root)
    for _ in range(2):  # parsed, then from the cache
        own, notes = DatasetSpec("cora", root=str(root)).load_with_notes()
        assert torch.equal(own.edge_index, published.edge_index) and torch.equal(own.x, published.x)
        assert any("not the published raw files: ind.cora.graph" in note for note in notes)


def test_a_listed_damaged_file_ends_in_one_message(root: Path) -> None:
    """Such bytes can crash the parser's process; it is not this one."""
    need_cora()
    file = root / CORA / "ind.cora.allx"
    whole = bytearray(file.read_bytes())
    whole[900] ^= 0xFF
    file.write_bytes(whole[:-4])
    list_sums(root)
    with pytest.raises(FglauditError, match=r"cora.*fglaudit data fetch cora") as caught:
        DatasetSpec("cora", root=str(root)).load()
    assert str(caught.value).isprintable() and len(str(caught.value)) <= MESSAGE


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(["0" * 64, "g" * 64, "  ", " *", "a/b", "../up", "/abs", "\n", "x", "\0"])).map(
        lambda parts: "".join(parts).encode()
    )
)
def test_any_list_of_checksums_is_read_or_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / CHECKSUMS).write_bytes(data)
    try:
        sums = read_checksums(tmp_path)
    except FglauditError as error:
        assert "line" in str(error) and ";" in str(error)
        return
    assert all(
        len(digest) == 64 and not path.startswith("/") and ".." not in path.split("/") for path, digest in sums.items()
    )


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1), st.integers(0, 7))
def test_a_damaged_cache_is_computed_again(root: Path, place: float, bit: int) -> None:
    need_cora()
    first = DatasetSpec("cora", root=str(root)).load()
    (cached,) = Path(os.environ["FGLAUDIT_CACHE"]).iterdir()
    whole = bytearray(cached.read_bytes())
    whole[int(place * (len(whole) - 1))] ^= 1 << bit
    cached.write_bytes(whole)
    again = DatasetSpec("cora", root=str(root)).load()
    assert torch.equal(first.x, again.x) and torch.equal(first.y, again.y)
    assert torch.equal(first.edge_index, again.edge_index) and torch.equal(first.train, again.train)  # type: ignore[arg-type]


def test_a_full_cache_is_not_blamed_on_whole_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that a raw file is corrupt, and to delete it."""
    need_cora()

    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")  # as writing gives it: without a name

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FglauditError, match="parsed in the cache folder") as found:
        DatasetSpec("cora", root=str(root)).load()
    assert "FGLAUDIT_CACHE" in str(found.value) and "delete" not in str(found.value)
