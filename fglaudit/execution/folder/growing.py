"""Whether a suite goes on in the folder of a run: it is the run's own, or the same with more seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from fglaudit import __version__
from fglaudit.errors import FglauditError
from fglaudit.execution.folder.run_folder import CONFIRMED
from fglaudit.execution.folder.stored_run import Manifest, read_manifest
from fglaudit.files.own import read_own
from fglaudit.suite.suite import Suite, resolve

RULE = "a folder holds one run of one suite"
FIX = "use another --out, or delete the folder"


def check_goes_on(directory: Path, suite: Suite, cells: Sequence[str], *, sharded: bool) -> None:
    """Raise :class:`FglauditError` where ``directory`` holds a run that ``cells`` of ``suite`` do not continue."""
    if os.path.lexists(directory / "run.json"):
        try:
            manifest = read_manifest(directory)
        except FglauditError:
            return  # a run writes it anew
        grows(directory, suite, cells, manifest, sharded=sharded)


def grows(directory: Path, suite: Suite, cells: Sequence[str], manifest: Manifest, *, sharded: bool) -> bool:
    """Return whether ``cells`` are those of the run in ``directory`` and more: the same suite with more seeds.

    A run does not grow where settings were confirmed, which is done on seeds that it did not have, nor by a shard,
    since others may be at work on the smaller plan.

    Raises:
        FglauditError: they are those of another run.
    """
    planned = [cell.cell for cell in manifest.plan]
    if manifest.made.version != __version__ or planned == list(cells):
        return False
    why = _refusal(directory, suite, cells, manifest, sharded=sharded)
    if why:
        raise FglauditError(f"{RULE}; {directory} holds another one ({manifest.suite}: {why}")
    return True


def _refusal(directory: Path, suite: Suite, cells: Sequence[str], manifest: Manifest, *, sharded: bool) -> str:
    old, new = _stored_suite(directory), suite.resolved()
    kept, wanted = {cell.cell for cell in manifest.plan}, set(cells)
    if {**old, "seeds": ()} != {**new, "seeds": ()}:
        if _same_today(old, suite):
            return f"another version of fglaudit wrote it, with other settings to this suite); {FIX}"
        differing = next((key for key in new if key != "datasets" and old.get(key) != new[key]), "datasets")
        if differing == "datasets" and _without_content(old) == _without_content(new):
            return f"it was made on another content of a graph's file); {FIX}"
        return f"{differing} differ{', by --quick' if differing == 'empirical' else ''}); {FIX}"
    if set(old["seeds"]) <= set(new["seeds"]) and not kept <= wanted:
        secret = any(cell.description.get("secret") is True for cell in manifest.plan)
        if secret == (wanted == {cell.hash() for cell in suite.cells()}):  # the suite says nothing of a key
            return f"one of the two is --secret); give --secret or not, as at first, or {FIX}"
        return f"another version of fglaudit wrote it, with other attacks or settings to this suite); {FIX}"
    if not kept <= wanted:
        seeds = ",".join(map(str, old["seeds"]))
        return f"seeds differ); a run keeps the seeds that it has, give --seeds {seeds} and more, or {FIX}"
    if os.path.lexists(directory / CONFIRMED):
        return f"seeds differ, and its settings were confirmed on others); {FIX}"
    if sharded:
        return f"seeds differ); run once without --shard to add seeds, or {FIX}"
    return ""


def _without_content(suite: dict[str, Any]) -> list[Any]:
    """Return the data sets of a resolved suite without what names the content of own graphs' files."""
    datasets = suite.get("datasets")
    named = datasets if isinstance(datasets, list) else []
    return [{k: v for k, v in one.items() if k != "sha256"} for one in named if isinstance(one, dict)]


def _same_today(old: dict[str, Any], suite: Suite) -> bool:
    """Whether the stored suite, read by this version, is ``suite``: then what differs are the versions' defaults."""
    if old.get("plugins"):  # of files that may be gone, or may not run
        return False
    try:
        return resolve(dict(old), "suite.yaml").resolved() == {**suite.resolved(), "seeds": old["seeds"]}
    except FglauditError:
        return False


def _stored_suite(directory: Path) -> dict[str, Any]:
    """Return ``suite.yaml`` of a run, with no seeds where it cannot be read."""
    try:
        return {"seeds": [], **yaml.safe_load(read_own(directory / "suite.yaml", "", ""))}
    except (FglauditError, yaml.YAMLError, TypeError, ValueError, RecursionError):
        return {"seeds": []}
