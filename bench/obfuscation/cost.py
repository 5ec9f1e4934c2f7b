"""``python -m bench obfuscation-cost``: CPU seconds that learned inversion takes at Cora's size, by observer.

The embedded data set with ten clients; one run of the attack per protocol, observer and map, without its self-test.
Resumable: writes ``obfuscation-cost.csv``.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bench.obfuscation.obfuscated import Obfuscated
from fglaudit.datasets import DatasetSpec
from fglaudit.interfaces import Attack, FederatedProtocol, Reconstruction
from fglaudit.observers import ObserverSpec, expand
from fglaudit.partition import PartitionSpec
from fglaudit.recording import Kept, record_training
from fglaudit.registry import build
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import Keep

KEY = ("protocol", "observer", "kind", "secret")
VALUES = ("cpu_seconds", "rows", "exact")
_DATA = DatasetSpec("csbm-cora")
_SPLIT = PartitionSpec("dirichlet", clients=10, beta=10000)
SERVER = ObserverSpec(("server",), topology=True, auxiliary=0.1)
CLIENT = ObserverSpec(("client:0",), degrees=True, auxiliary=0.1)
CASES: tuple[tuple[str, dict[str, Any], ObserverSpec, str, bool], ...] = (
    ("fedgcn", {"hops": 1, "rounds": 1}, SERVER, "rotation", False),
    ("fedgcn", {"hops": 1, "rounds": 1}, SERVER, "table", False),
    ("fedgcn", {"hops": 1, "rounds": 1}, SERVER, "one-time-pad", False),
    ("fedgcn", {"hops": 1, "rounds": 1}, SERVER, "rotation", True),
    ("fedgcn", {"hops": 1, "rounds": 1}, CLIENT, "signs", False),
    ("fedgat", {"variant": "matrix", "rounds": 1}, CLIENT, "signs", False),
)


def run(results: Path) -> None:
    """Measure what the table lacks, and print it."""
    table = Table(results / "obfuscation-cost.csv", KEY, VALUES)
    graph = _SPLIT.apply(_DATA.load(), _DATA, derive(0, "partition"))
    for protocol, arguments, spec, kind, secret in CASES:
        key = dict(zip(KEY, (protocol, spec.name, kind, str(secret)), strict=True))
        if table.has(key):
            continue
        trained: FederatedProtocol = build("protocol", protocol, arguments)
        attack: Attack = build("attack", "learned-inversion", {})
        observer = expand(spec, graph.num_clients)[0][0]
        keep, hidden = Keep.for_attacks([observer], [attack]), Obfuscated(kind, secret)
        with TemporaryDirectory() as spool:  # as a cell of an audit is recorded
            recording, _ = record_training(
                graph, trained, hidden, seed=0, keep=Kept(messages=keep, fractions={spec.auxiliary}, folder=Path(spool))
            )
            start = time.process_time()
            found = attack.run(recording.view(observer), rng=derive(0, "cost"), device=torch.device("cpu"))
            seconds = time.process_time() - start
        assert isinstance(found, Reconstruction)
        there = found.nodes >= 0
        right = torch.isclose(found.rows[there].float(), graph.x[found.nodes[there]].float(), atol=1e-3).all(1)
        table.add({**key, "cpu_seconds": f"{seconds:.1f}", "rows": len(found.rows), "exact": int(right.sum())})
        print(
            f"{protocol} {spec.name} {kind} secret={secret}: {seconds:.1f} CPU s, {int(right.sum())} exact", flush=True
        )
