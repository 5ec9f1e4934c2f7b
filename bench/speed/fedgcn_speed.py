"""One timed FedGCN training in a process of its own, so that peak memory is this run's: prints seconds, CPU seconds,
gigabytes."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.interfaces import DefenseSession
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel


def measure(
    dataset: str, root: str | None, hops: int, threads: int, device: torch.device
) -> tuple[float, float, float]:
    """Train with 10 clients, 300 rounds of 3 local steps and accuracy every round.

    Returns:
        Wall seconds from the loaded, partitioned graph to final weights; CPU seconds of all threads, which other work
        on the machine disturbs less; peak resident memory of the process in GB (10^9 bytes).
    """
    torch.set_num_threads(threads)
    spec = DatasetSpec(dataset, root=root)
    partition = PartitionSpec("dirichlet", clients=10, beta=10000)
    graph = partition.apply(spec.load(), spec, derive(0, "partition"))
    channel = RecordingChannel(DefenseSession(), 10, derive(0, "defense"))
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]  # belongs to the imports
    start, cpu = time.perf_counter(), time.process_time()
    trained = FedGCN(hops=hops).train(graph, channel, rng=derive(0, "train"), device=device)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    if len(trained.accuracy) != 300:
        raise RuntimeError("accuracy was not measured every round")
    return seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    name, folder, hop_count, thread_count, where = sys.argv[1:]
    print(
        *measure(
            name, folder if Path(folder).is_dir() else None, int(hop_count), int(thread_count), torch.device(where)
        )
    )
