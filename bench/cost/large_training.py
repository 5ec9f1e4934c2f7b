"""FedGCN trained on a drawn graph, by default of ogbn-products' size: 2.4 million nodes, 61.9 million undirected edges,
100 features, 47 classes, its shares of training, validation and test nodes, 10 clients; 10 rounds, full batch, on the
device that is asked for.

Nothing is recorded. Every number of hops is measured in a process of its own, whose peak memory is its row's, the
drawing of the graph included. On a random graph almost every node is a neighbour of every client: no real graph asks
more of two hops.
"""

from __future__ import annotations

import dataclasses
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from bench.cost.devices import named, peak_gigabytes
from bench.cost.sums import random_graph
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

KEY = ("nodes", "edges", "features", "classes", "clients", "rounds", "hops", "threads", "device")
VALUES = (
    "seconds_drawing",
    "seconds_before",
    "seconds_per_round",
    "cpu_seconds_training",
    "accuracy",
    "peak_rss_gb",
    "peak_gpu_gb",
)
SHARES = (0.0803, 0.0161)
"""Training and validation nodes of ogbn-products; the others are its test nodes."""


@dataclasses.dataclass(frozen=True)
class Size:
    """Of the graph and its training; the fields are those of the table's key."""

    nodes: int
    edges: int
    clients: int
    features: int = 100
    classes: int = 47
    rounds: int = 10


def run(results: Path, size: Size, most_hops: int, device: torch.device) -> None:
    """Measure 0 to ``most_hops`` hops, each once; rows go to ``results/large_training.csv``."""
    table = Table(results / "large_training.csv", KEY, VALUES)
    threads = torch.get_num_threads()
    for hops in range(most_hops + 1):
        key = {**dataclasses.asdict(size), "hops": hops, "threads": threads, "device": named(device)}
        if not table.has(key):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                table.add({**key, **process.submit(measure, size, hops, threads, device).result()})
            print(*(f"{name}={value}" for name, value in table.rows()[-1].items()), flush=True)


def labelled_graph(size: Size) -> FederatedGraph:
    """Return a random graph with random labels and features that show a little of them."""
    graph = random_graph(size.nodes, size.edges, size.features, size.clients)
    rng = derive(0, "large-training")
    y = torch.randint(size.classes, (size.nodes,), generator=rng)
    graph.x[torch.arange(size.nodes), y % size.features] += 2
    draws = [torch.rand(len(nodes), generator=rng) for nodes in graph.clients]
    train = tuple(draw < SHARES[0] for draw in draws)
    val = tuple((draw >= SHARES[0]) & (draw < sum(SHARES)) for draw in draws)
    test = tuple(~(a | b) for a, b in zip(train, val, strict=True))
    return dataclasses.replace(graph, y=y, train=train, val=val, test=test, num_classes=size.classes)


def measure(size: Size, hops: int, threads: int, device: torch.device) -> dict[str, str]:
    """Return the figures of one training."""
    torch.set_num_threads(threads)
    started = time.perf_counter()
    graph = labelled_graph(size)
    drawn, cpu = time.perf_counter(), time.process_time()
    ended: list[float] = []
    channel = RecordingChannel(
        DefenseSession(),
        size.clients,
        derive(0, "defense"),
        progress=lambda *_: ended.append(time.perf_counter()),
    )
    protocol = FedGCN(hops=hops, rounds=size.rounds)
    trained = protocol.train(graph, channel, rng=derive(0, "train"), device=device)
    each = (ended[-1] - ended[0]) / (len(ended) - 1) if len(ended) > 1 else ended[0] - drawn
    return {
        "seconds_drawing": f"{drawn - started:.1f}",
        "seconds_before": f"{ended[0] - each - drawn:.1f}",
        "seconds_per_round": f"{each:.2f}",
        "cpu_seconds_training": f"{time.process_time() - cpu:.1f}",
        "accuracy": f"{trained.whole_test_set:.4f}",
        "peak_rss_gb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f}",
        "peak_gpu_gb": peak_gigabytes(device),
    }
