"""``fglaudit doctor``: what is installed, which devices and data sets are found, what is missing and how to get it."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from fglaudit import __version__
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.cores import available_cores

REQUIRED = ("torch", "torch-geometric", "numpy", "scipy", "scikit-learn", "pandas", "networkx", "safetensors",
            "pydantic", "pyyaml", "typer", "rich", "jinja2", "dp-accounting", "filelock")  # fmt: skip

OPTIONAL = {
    "pymetis": ("partition scheme metis", "pip install 'fglaudit[metis]'"),
    "tenseal": ("homomorphic encryption", "pip install 'fglaudit[he]'"),
    "cryptography": ("secure aggregation", "pip install 'fglaudit[secagg]'"),
    "resvg-py": ("figures as PNG", "pip install 'fglaudit[png]'"),
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


def examine(torch_too: bool = False) -> Iterator[Check]:
    """Yield every check, cheap ones first.

    Args:
        torch_too: import torch and the optional packages, which takes seconds, and ask torch for devices; otherwise the
            driver is asked.
    """
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
        failure = _import_failure(name) if version and torch_too else ""
        detail = f"{version} ({purpose})" if version else f"not installed; needed for {purpose}"
        if failure:
            detail = f"{version} is installed and does not import: {failure}; needed for {purpose}"
        yield Check(name, "ok" if version and not failure else "missing", detail, fix)
    yield from _png()
    yield from _devices(torch_too)
    yield from _data()


def _png() -> Iterator[Check]:
    """What figures as PNG need beside their package, as a report finds it."""
    from fglaudit.reports.formats.png import lacking

    if _version("resvg-py") is None:
        return  # said above
    lack = lacking()
    detail = f"not drawn; needs {lack.what}" if lack else "drawn, with a font"
    yield Check("figures as PNG", "missing" if lack else "ok", detail, lack.fix if lack else "")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _import_failure(distribution: str) -> str:
    try:
        importlib.import_module(distribution.replace("-", "_"))
    except Exception as error:  # a broken build raises whatever its libraries do
        return f"{type(error).__name__}: {error}"
    return ""


def _devices(torch_too: bool) -> Iterator[Check]:
    """What can be computed on. Importing torch takes seconds: only where asked for is it really tried."""
    detail = f"{available_cores()} cores"
    if torch_too:
        try:
            import torch
        except Exception as error:  # a broken build raises whatever its libraries do
            yield Check("torch imports", "broken", f"{type(error).__name__}: {error}", "reinstall torch")
            return
        yield Check("torch imports", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")
        found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        gpus = [(device.name, device.total_memory) for device in found]
        built = torch.version.cuda
    else:
        gpus, built = cuda_devices(), _torch_cuda()
    yield Check("device cpu", "ok", detail)
    for i, (name, memory) in enumerate(gpus if built else ()):
        yield Check(f"device cuda:{i}", "ok", f"{name}, {memory / 2**30:.0f} GiB")
    if not gpus:
        yield Check("device cuda", "missing", "no CUDA device; everything runs on the CPU", "a machine with a GPU")
    elif not built:
        seen = f"{gpus[0][0]} is here, but this torch is a build without CUDA"
        yield Check("device cuda", "missing", seen, "install a CUDA build of torch")


def _torch_cuda() -> str | None:
    """Return the version of CUDA that the installed torch was built with, from its file ``version.py``."""
    spec = PathFinder.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text("utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=\n]*= *'([^']+)'", text, re.MULTILINE)
    return found[1] if found else None


def cuda_devices() -> list[tuple[str, int]]:
    """Return name and bytes of memory of every GPU, as the CUDA driver says; empty where there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1" if sys.platform != "win32" else "nvcuda.dll")
    except OSError:
        return []
    number = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(number)):
        return []
    devices = []
    for i in range(number.value):
        device, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(100)
        if driver.cuDeviceGet(ctypes.byref(device), i):
            continue
        driver.cuDeviceGetName(name, len(name), device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        devices.append((name.value.decode("utf-8", "replace"), memory.value))
    return devices


def _data() -> Iterator[Check]:
    from fglaudit.datasets import check_root
    from fglaudit.datasets.fetch import how_to_get
    from fglaudit.datasets.root import find_root, no_root

    try:
        root = find_root(None, "a data set")
    except FglauditError:
        fix = "fglaudit data fetch cora --root DIR; then --root DIR or FGLAUDIT_DATA=DIR"
        yield Check("data root", "missing", f"{no_root()}; the built-in data sets work without one", fix)
        return
    yield Check("data root", "ok", str(root.resolve()))
    for name, status in check_root(root):
        state = "ok" if status == "ok" else "missing"
        yield Check(
            f"data {name}",
            state,
            "all files are there" if state == "ok" else status,
            how_to_get(name, root),
        )
