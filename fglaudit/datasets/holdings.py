"""Which data sets there are, and which of their files lie under a root; no content is parsed."""

from __future__ import annotations

from pathlib import Path

from fglaudit.datasets.catalog import CUT, DESCRIPTIONS, OGB_SOURCES, PYG_SOURCES, ogb_files
from fglaudit.datasets.root import CHECKSUMS, read_checksums, sha256
from fglaudit.errors import FglauditError


def dataset_names() -> dict[str, str]:
    """Return a one-line description per data set."""
    return dict(DESCRIPTIONS)


def check_root(root: str | Path) -> list[tuple[str, str]]:
    """Return (data set, status) for every set read from files: "ok", "absent" or the missing files.

    No content is read.
    """
    base = Path(root)
    wanted = {name: (base / s.folder / s.raw, list(s.files)) for name, s in PYG_SOURCES.items()}
    wanted.update({name: (base / s.folder, ogb_files(name)) for name, s in OGB_SOURCES.items()})
    found = []
    for name, (folder, files) in wanted.items():
        missing = [file for file in files if not (folder / file).is_file()]
        status = (
            "ok"
            if not missing
            else f"missing in {folder}: {', '.join(missing)}"
            if folder.is_dir()
            else f"absent ({folder})"
        )
        found.append((name, status))
    return found


def availability(root: Path | None) -> dict[str, str]:
    """Return by data set whether it is "built in", "here" (its files are under ``root``), "to get", or "yours"."""
    status = dict(check_root(root)) if root is not None else {}

    def of(name: str) -> str:
        if name == "npz":
            return "yours"
        if name not in PYG_SOURCES and name not in OGB_SOURCES and name not in CUT:
            return "built in"
        return "here" if status.get(CUT.get(name, name)) == "ok" else "to get"

    return {name: of(name) for name in DESCRIPTIONS}


def verify_checksums(root: str | Path) -> list[str]:
    """Compare every file listed in ``SHA256SUMS`` under ``root``; return the paths that differ or are missing.

    Raises:
        FglauditError: if ``root`` has no ``SHA256SUMS``.
    """
    base = Path(root)
    expected = read_checksums(base)
    if not expected:
        raise FglauditError(
            f"checksums are read from {base / CHECKSUMS}; it is missing or empty; nothing can be verified without it"
        )
    return [path for path, digest in expected.items() if not (base / path).is_file() or sha256(base / path) != digest]
