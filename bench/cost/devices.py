"""How long every protocol trains on each device of this machine, in one table: ``bench/results/devices.csv``.

Rows called ``small`` are the settings of ``bench.defense_settings``, those called ``paper`` the protocols' defaults, as
their papers set them, on the embedded data sets. Nothing is recorded; loading and partitioning are not timed. The first
of the runs warms the device up and does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.defense_settings import SETUPS, TASK, Setup
from fglaudit.datasets import DatasetSpec
from fglaudit.interfaces import DefenseSession
from fglaudit.partition import PartitionSpec
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

KEY = ("size", "protocol", "arguments", "dataset", "device")
VALUES = ("seconds", "lowest", "highest", "runs", "accuracy", "peak_gpu_gb")

_CORA = DatasetSpec("csbm-cora")
_CLIENTS = (_CORA, PartitionSpec("dirichlet", clients=10, beta=10000))
PAPER: tuple[Setup, ...] = (
    *(Setup("fedgcn", {"hops": hops}, *_CLIENTS) for hops in (0, 1, 2)),
    Setup("fedgat", {"variant": "matrix"}, *_CLIENTS),
    Setup("nfedgnn", {}, _CORA, PartitionSpec("per-node")),
    Setup("gfl-appnp", {}, *TASK),
    Setup("fedgt", {}, _CORA, PartitionSpec("louvain", clients=10)),
)


def present() -> list[torch.device]:
    """Return the devices of this machine: a GPU first, where there is one."""
    gpu = [torch.device("cuda", 0)] if torch.cuda.is_available() else []
    return [*gpu, torch.device("cpu")]


def named(device: torch.device) -> str:
    """Return the name of a GPU's model, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_gigabytes(device: torch.device) -> str:
    """Return the most that tensors took on a GPU; "" for the CPU."""
    return f"{torch.cuda.max_memory_allocated(device) / 1e9:.2f}" if device.type == "cuda" else ""


def run(results: Path, runs: int = 3, devices: Sequence[torch.device] | None = None) -> None:
    """Measure what the table lacks."""
    table = Table(results / "devices.csv", KEY, VALUES)
    for device in present() if devices is None else devices:
        for size, setups in (("small", SETUPS), ("paper", PAPER)):
            for setup in setups:
                add(table, size, setup, device, runs)


def add(table: Table, size: str, setup: Setup, device: torch.device, runs: int) -> None:
    """Measure one row unless the table has it, and print it."""
    arguments = " ".join(f"{name}={value}" for name, value in setup.arguments.items())
    key = dict(zip(KEY, (size, setup.protocol, arguments, setup.dataset.name, named(device)), strict=True))
    if not table.has(key):
        table.add({**key, **measure(setup, device, runs)})
        print(*(f"{name}={value}" for name, value in table.rows()[-1].items()), flush=True)


def measure(setup: Setup, device: torch.device, runs: int) -> dict[str, str]:
    """Return the figures of ``runs`` trainings after one that does not count."""
    graph = setup.partition.apply(setup.dataset.load(), setup.dataset, derive(0, "partition"))
    times, accuracy = [], 0.0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(runs + 1):
        channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"))
        started = time.perf_counter()
        trained = setup.build().train(graph, channel, rng=derive(0, "train"), device=device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
        accuracy = trained.client_mean
    counted = times[1:]
    return {
        "seconds": f"{statistics.median(counted):.3f}",
        "lowest": f"{min(counted):.3f}",
        "highest": f"{max(counted):.3f}",
        "runs": str(runs),
        "accuracy": f"{accuracy:.3f}",
        "peak_gpu_gb": peak_gigabytes(device),
    }
