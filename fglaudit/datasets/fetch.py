"""Download of raw files through torch-geometric, on request: the only module that uses the network."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from fglaudit.datasets.catalog import ALIASES, DESCRIPTIONS, OGB_SOURCES, PYG_SOURCES
from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files.own import reason
from fglaudit.files.user import is_file, user_path


def fetch(name: str, root: str | Path) -> Path:
    """Download the raw files of ``name`` below ``root`` where they are missing; return their folder.

    The download runs in a temporary folder under ``root``, so a failed one leaves no part of a data set behind;
    existing files are kept.

    Raises:
        FglauditError: the set needs no download or has no automatic one, the download failed, or ``root`` cannot be
            written.
    """
    name = ALIASES.get(name, name)
    root = user_path(root, "a data root")
    if name not in DESCRIPTIONS:
        raise unknown("data set", name, DESCRIPTIONS, "fglaudit list datasets")
    if name in OGB_SOURCES:
        raise FglauditError(f"{name} is not fetched automatically; {how_to_get(name, root)}")
    if name not in PYG_SOURCES:
        raise FglauditError(f"only public data sets are fetched; {name!r} needs no download; use it as it is")
    pyg = PYG_SOURCES[name]
    target = root / pyg.folder / pyg.raw
    if all(is_file(target / file) for file in pyg.files):
        return target
    try:
        root.mkdir(parents=True, exist_ok=True)
        _download(name, root, target)
    except OSError as error:
        raise FglauditError(
            f"a data root must be writable; {shown(str(root))}: {reason(error)}; use another --root"
        ) from error
    return target


def how_to_get(name: str, root: Path) -> str:
    """Return what to do so that the raw files of ``name`` lie under ``root``."""
    if name in OGB_SOURCES:
        source = OGB_SOURCES[name]
        return f"unpack {source.url} so that {root / source.folder} holds raw/ and split/"
    return f"fglaudit data fetch {name} --root {root}"


def _download(name: str, root: Path, target: Path) -> None:
    """Put the raw files of ``name`` that are missing into ``target``, below ``root``.

    Raises:
        FglauditError: the download failed.
        OSError: a folder cannot be made, or a file not be put there.
    """
    import torch_geometric.datasets

    pyg = PYG_SOURCES[name]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as folder:
        try:
            pyg.make(getattr(torch_geometric.datasets, pyg.class_name), folder)
        except Exception as error:  # whatever the transport or the parser of a broken download raises
            raise FglauditError(
                f"{name} could not be downloaded ({type(error).__name__}: {error}); check the network, "
                f"or put {', '.join(pyg.files[:2])} ... into {target} by hand"
            ) from error
        target.mkdir(parents=True, exist_ok=True)
        for file in pyg.files:
            if not (target / file).is_file():
                shutil.move(Path(folder) / pyg.raw / file, target / file)
