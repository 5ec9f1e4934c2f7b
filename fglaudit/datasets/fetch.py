"""Download of raw files through torch-geometric, on request: the only module that uses the network."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from fglaudit.datasets.catalog import ALIASES, DESCRIPTIONS, OGB_SOURCES, PYG_SOURCES
from fglaudit.errors import FglauditError, unknown


def fetch(name: str, root: str | Path) -> Path:
    """Download the raw files of ``name`` below ``root`` where they are missing; return their folder.

    The download runs in a temporary folder under ``root``, so a failed one leaves nothing behind; existing files are
    kept.

    Raises:
        FglauditError: the set needs no download or has no automatic one, or the download failed.
    """
    name = ALIASES.get(name, name)
    if name not in DESCRIPTIONS:
        raise unknown("data set", name, DESCRIPTIONS)
    if name in OGB_SOURCES:
        source, target = OGB_SOURCES[name], Path(root) / OGB_SOURCES[name].folder
        raise FglauditError(
            f"{name} is not fetched automatically; unpack {source.url} so that {target} holds raw/ and split/"
        )
    if name not in PYG_SOURCES:
        raise FglauditError(f"only public data sets are fetched; {name!r} needs no download; use it as it is")
    pyg = PYG_SOURCES[name]
    target = Path(root) / pyg.folder / pyg.raw
    if all((target / file).is_file() for file in pyg.files):
        return target
    target.mkdir(parents=True, exist_ok=True)
    import torch_geometric.datasets

    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as folder:
        try:
            pyg.make(getattr(torch_geometric.datasets, pyg.class_name), folder)
        except Exception as error:  # whatever the transport or the parser of a broken download raises
            raise FglauditError(
                f"{name} could not be downloaded ({type(error).__name__}: {error}); check the network, "
                f"or put {', '.join(pyg.files[:2])} ... into {target} by hand"
            ) from error
        for file in pyg.files:
            if not (target / file).is_file():
                shutil.move(Path(folder) / pyg.raw / file, target / file)
    return target
