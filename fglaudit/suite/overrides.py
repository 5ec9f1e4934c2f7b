"""From the arguments of the command line to a suite, observers, attacks, an output folder and a device."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fglaudit import registry
from fglaudit.errors import FglauditError, meant, shown, unknown
from fglaudit.files import limits
from fglaudit.files.user import is_folder, user_path
from fglaudit.interfaces import Attack
from fglaudit.observers import ObserverSpec
from fglaudit.suite.checks import check_attacks, check_observers
from fglaudit.suite.entries import dataset_spec
from fglaudit.suite.plugin_files import Trust
from fglaudit.suite.reading import parse, read
from fglaudit.suite.suite import Suite, resolve


def load_suite(
    name: str,
    datasets: Sequence[str] = (),
    root: Path | None = None,
    seeds: str | None = None,
    trust: Trust | None = None,
) -> Suite:
    """Read a suite and put the command line's data sets, data root and seeds in place of its own.

    Args:
        trust: which plugin files may run; see :mod:`fglaudit.suite.plugin_files`.

    Raises:
        FglauditError: if the suite or an override is wrong.
    """
    data, path = read(name)
    if datasets:
        data["datasets"] = [dataset_entry(dataset) for dataset in datasets]
    if root is not None:
        root = data_root(root)
        entries = data.get("datasets")
        if isinstance(entries, list):
            named = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
            data["datasets"] = [{**entry, "root": str(root)} if isinstance(entry, dict) else entry for entry in named]
    if seeds is not None:
        data["seeds"] = parse_seeds(seeds)
    return resolve(data, name, path.parent if path else None, trust)


def data_root(root: Path) -> Path:
    """Return the folder that ``--root`` names.

    Raises:
        FglauditError: there is none.
    """
    folder = user_path(root, "--root")
    if not is_folder(folder):
        raise FglauditError(f"--root must be a folder with raw data sets; there is no folder {root}; correct it")
    return folder


def dataset_entry(name: str) -> dict[str, str]:
    """Return the suite entry for a data set named on the command line; a file ``*.npz`` is a user's own graph, split at
    random where it holds no masks.

    Raises:
        FglauditError: there is no data set of this name.
    """
    if not name.endswith(".npz"):
        dataset_spec({"name": name}, "--dataset")  # of the suite's entries none is wrong
        return {"name": name}
    return {"name": "npz", "path": name, **({"split": "random"} if _without_masks(Path(name)) else {})}


def _without_masks(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return not any("_mask" in entry for entry in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False  # what is wrong with the file is said where it is loaded


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that ``0,1,2`` or ``0-9`` or a mixture of both names."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,19})\s*(?:-\s*([0-9]{1,19})\s*)?", part)
        if not found:
            raise FglauditError(
                f"--seeds takes numbers below 2^63, such as 0,1,2 or 0-9; got {shown(text)}; correct it"
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise FglauditError(f"--seeds takes ranges from low to high; got {shown(part)}; swap the ends")
        if len(seeds) + last - first >= limits.CELLS:
            raise FglauditError(f"--seeds may name {limits.CELLS} seeds; got {shown(text)}; name fewer")
        seeds += range(first, last + 1)
    return seeds


def named_observers(names: Sequence[str], **knowledge: Any) -> list[ObserverSpec]:
    """Return the observers named on the command line, parties joined by ``+``, all with the same side knowledge."""
    share = knowledge.get("auxiliary", 0.0)
    if not 0 <= share < 1:
        raise FglauditError(
            f"--auxiliary is a share of all rows, at least 0 and below 1; got {share:g}; write e.g. 0.1 for a tenth"
        )
    observers = [ObserverSpec(tuple(name.split("+")), **knowledge) for name in names]
    try:
        check_observers(observers, ())
    except FglauditError as error:
        raise FglauditError(f"--observer: {error}") from error
    return observers


def named_attacks(texts: Sequence[str]) -> list[Attack]:
    """Return the attacks named on the command line: a name, ``file.py:Class``, or ``{name: ..., FIELD: ...}``."""
    attacks = []
    for text in texts:
        entry = parse(text, "--attack") if text.lstrip().startswith("{") else {"name": text}
        if not isinstance(name := entry.pop("name", None), str):
            slip = meant(entry, "name")
            raise FglauditError(f"--attack needs a name; got {text!r}{slip}; write e.g. '{{name: mask-flip}}'")
        attacks.append(registry.build("attack", name, entry, "--attack"))
    try:
        check_attacks(attacks)
    except FglauditError as error:
        raise FglauditError(f"--attack: {error}") from error
    return attacks


def output_folder(suite: Suite, datasets: Sequence[str]) -> Path:
    """Return ``runs/NAME``, with the data sets from the command line in the name: another data set is another run."""
    return Path("runs") / "-".join([suite.name, *(Path(d).stem for d in datasets)])


def pick_device(wanted: str, *, elsewhere: bool = False) -> str:
    """Return ``cpu`` or ``cuda[:N]``.

    Args:
        elsewhere: cells are given GPUs on machines of a cluster, where this process cannot look.

    Raises:
        FglauditError: unknown device, or no such GPU here.
    """
    if elsewhere and wanted in ("auto", "cuda"):
        return "cuda"
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return wanted
    if not re.fullmatch(r"cuda(:[0-9]+)?", wanted):
        if "gpu" in wanted.lower():
            raise FglauditError(f"a device is auto, cpu or cuda; got {wanted!r}; a GPU is --device cuda")
        raise unknown("device", wanted, ("auto", "cpu", "cuda"))
    number = int((wanted.partition(":")[2] or "0")[:9])
    if number >= torch.cuda.device_count():
        raise FglauditError(
            f"--device {wanted} needs that GPU; torch sees {torch.cuda.device_count()} here; use --device cpu"
        )
    return wanted
