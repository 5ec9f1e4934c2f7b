"""``fglaudit doctor``: what is installed, which devices and data sets are found, what is missing and how to get it."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from fglaudit import __version__
from fglaudit.errors import FglauditError

REQUIRED = ("torch", "torch-geometric", "numpy", "scipy", "scikit-learn", "pandas", "networkx", "safetensors",
            "pydantic", "pyyaml", "typer", "rich", "jinja2", "dp-accounting", "filelock")  # fmt: skip

OPTIONAL = {
    "pymetis": ("partition scheme metis", "pip install 'fglaudit[metis]'"),
    "tenseal": ("homomorphic encryption", "pip install 'fglaudit[he]'"),
    "cryptography": ("secure aggregation", "pip install 'fglaudit[secagg]'"),
    "opacus": ("reference of per-example gradients", "pip install 'fglaudit[dp]'"),
    "ray": ("--engine ray", "pip install 'fglaudit[ray]'"),
    "ogb": ("data sets ogbn-arxiv and ogbn-products", "pip install ogb"),
}


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report. ``state``: ok | missing (optional) | broken (nothing works without it)."""

    what: str
    state: str
    detail: str
    fix: str = ""


def examine() -> Iterator[Check]:
    """Yield every check, cheap ones first."""
    yield Check("fglaudit", "ok", __version__)
    yield Check(
        "python",
        "ok" if sys.version_info >= (3, 11) else "broken",
        platform.python_version(),
        "use Python 3.11 or newer",
    )
    for name in REQUIRED:
        version = _version(name)
        yield Check(name, "ok" if version else "broken", version or "not installed", f"pip install {name}")
    for name, (purpose, fix) in OPTIONAL.items():
        version = _version(name)
        detail = f"{version} ({purpose})" if version else f"not installed; needed for {purpose}"
        yield Check(name, "ok" if version else "missing", detail, fix)
    yield from _devices()
    yield from _data()


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> Iterator[Check]:
    try:
        import torch
    except ImportError as error:
        yield Check("device", "broken", f"torch does not import: {error}", "reinstall torch")
        return
    from fglaudit.execution.engine import available_cores

    yield Check("device cpu", "ok", f"{available_cores()} cores, torch uses {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(i).total_memory / 2**30
            yield Check(f"device cuda:{i}", "ok", f"{torch.cuda.get_device_name(i)}, {memory:.0f} GiB")
    else:
        yield Check(
            "device cuda", "missing", "no CUDA device; everything runs on the CPU", "install a CUDA build of torch"
        )


def _data() -> Iterator[Check]:
    from fglaudit.datasets import check_root
    from fglaudit.datasets.root import find_root

    try:
        root = find_root(None, "a data set")
    except FglauditError:
        fix = "fglaudit data fetch cora --root DIR; then --root DIR or FGLAUDIT_DATA=DIR"
        yield Check("data root", "missing", "none found; the embedded data sets work without one", fix)
        return
    yield Check("data root", "ok", str(root.resolve()))
    for name, status in check_root(root):
        state = "ok" if status == "ok" else "missing"
        yield Check(
            f"data {name}",
            state,
            "all files are there" if state == "ok" else status,
            f"fglaudit data fetch {name} --root {root}",
        )
