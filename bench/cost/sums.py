"""One-hop pre-training aggregation on a random graph, by default of ogbn-products' size: 2.4 million nodes, 60 million
undirected edges (120 million directed entries), 100 features, 10 clients.

Measured is what FedGCN runs (``collect`` and ``deliver``): every client's partial sums, the server's addition, and the
rows sent back. The time stands beside two floors at the machine's measured copy bandwidth: *compulsory*, where every
input and output byte moves once, and *gather*, where every edge reads its neighbour's row from memory, as it must on a
random graph whose features exceed the cache.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fglaudit.federated.neighborhood import HeldRows, KeptEdges
from fglaudit.federated.problem import gather_features
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

KEY = ("nodes", "edges", "features", "clients", "threads")
VALUES = (
    "seconds_setup",
    "seconds_aggregation",
    "cpu_seconds_aggregation",
    "copy_gb_per_s",
    "compulsory_gb",
    "gather_gb",
    "floor_compulsory_s",
    "floor_gather_s",
    "uplink_gb",
    "peak_rss_gb",
)


def random_edges(nodes: int, edges: int, rng: np.random.Generator) -> Tensor:
    """Return ``edges`` distinct undirected edges as a canonical edge list [2, 2 edges]."""
    codes = np.empty(0, dtype=np.int64)
    while len(codes) < edges:
        missing = edges - len(codes)
        a, b = rng.integers(nodes, size=(2, missing + missing // 20 + 16), dtype=np.int32)
        drawn = np.minimum(a, b).astype(np.int64) * nodes + np.maximum(a, b)
        codes = np.unique(np.concatenate([codes, drawn[a != b]]))
    codes = np.delete(codes, rng.choice(len(codes), len(codes) - edges, replace=False))
    both = np.concatenate([codes, codes % nodes * nodes + codes // nodes])
    del codes
    both.sort()
    edge_index = torch.empty(2, len(both), dtype=torch.long)
    np.floor_divide(both, nodes, out=edge_index[0].numpy())
    np.remainder(both, nodes, out=edge_index[1].numpy())
    return edge_index


def random_graph(nodes: int, edges: int, features: int, clients: int) -> FederatedGraph:
    """Return a random graph split evenly over clients."""
    edge_index = random_edges(nodes, edges, np.random.default_rng(0))
    rng = derive(0, "scale")
    owned = tuple(part.sort().values for part in torch.randperm(nodes, generator=rng).chunk(clients))
    none = tuple(torch.zeros(len(part), dtype=torch.bool) for part in owned)
    x, y = torch.randn(nodes, features, generator=rng), torch.zeros(nodes, dtype=torch.long)
    return FederatedGraph(x, y, edge_index, owned, none, none, none, "random", 1, FeatureKind.REAL)


def copy_bandwidth() -> float:
    """Return bytes read plus bytes written per second when copying a quarter of a gibibyte, best of five."""
    source, target = torch.ones(2**26), torch.empty(2**26)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - start)
    return 2 * 2**28 / best


def run(results: Path, nodes: int, edges: int, features: int, clients: int) -> None:
    """Measure once per size and thread count; the row goes to ``results/scale.csv``."""
    table = Table(results / "scale.csv", KEY, VALUES)
    key = {"nodes": nodes, "edges": edges, "features": features, "clients": clients, "threads": torch.get_num_threads()}
    if not table.has(key):
        table.add({**key, **measure(nodes, edges, features, clients)})
    for row in table.rows():
        print(*(f"{name}={value}" for name, value in row.items()))


def measure(nodes: int, edges: int, features: int, clients: int) -> dict[str, str]:
    """Return the figures of one run."""
    bandwidth = copy_bandwidth()
    started = time.perf_counter()
    graph = random_graph(nodes, edges, features, clients)
    prepared = [graph.client(k) for k in range(clients)]
    kept = KeptEdges.of(prepared, graph.degrees())
    x = gather_features(prepared, nodes)
    del prepared, graph
    rows = HeldRows.within(kept, clients, 0)
    setup = time.perf_counter() - started

    protocol = FedGCN(hops=1)
    channel = RecordingChannel(DefenseSession(), clients, derive(0, "defense"))
    started, cpu = time.perf_counter(), time.process_time()
    total = protocol.collect(kept, x, clients, channel)
    received = protocol.deliver(total, rows, torch.ones(nodes, dtype=torch.bool), channel)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    check(kept, x, rows, received)

    row_bytes = 4 * features
    sent = int(channel.bytes_up.sum().item())
    entries = len(kept.source)
    # Features and edges are read, messages written and read, totals written (8 bytes) and read, answers written.
    compulsory = nodes * row_bytes + 4 * entries + 2 * sent + 4 * nodes * row_bytes + nodes * row_bytes
    gather = compulsory + entries * row_bytes
    return {
        "seconds_setup": f"{setup:.1f}",
        "seconds_aggregation": f"{seconds:.1f}",
        "cpu_seconds_aggregation": f"{cpu:.1f}",
        "copy_gb_per_s": f"{bandwidth / 1e9:.1f}",
        "compulsory_gb": f"{compulsory / 1e9:.1f}",
        "gather_gb": f"{gather / 1e9:.1f}",
        "floor_compulsory_s": f"{compulsory / bandwidth:.1f}",
        "floor_gather_s": f"{gather / bandwidth:.1f}",
        "uplink_gb": f"{sent / 1e9:.2f}",
        "peak_rss_gb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f}",
    }


def check(kept: KeptEdges, x: Tensor, rows: HeldRows, received: Tensor) -> None:
    """Compare a hundred received rows with sums computed one by one."""
    for place in torch.randperm(len(rows.node), generator=derive(0, "check"))[:100].tolist():
        node = rows.node[place : place + 1]
        source = kept.incoming(node)[1]
        weights = kept.scale()[node] * kept.scale()[source]
        expected = (weights.unsqueeze(1) * x[source].double()).sum(0)
        if not torch.allclose(received[place].double(), expected, atol=1e-5):
            raise RuntimeError(f"the sum of node {int(node.item())} is wrong")
