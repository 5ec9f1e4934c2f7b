"""What ckks costs where the server multiplies by public numbers or averages models: GFL-APPNP, FedGAT, FedGCN's models.

Every case trains for ``rounds`` with and without encryption of one payload and states figures per release of it:
ciphertexts, bytes, process time, and how far the final weights are from those trained in the clear. The columns
``training_*`` are what the protocol's own number of rounds comes to: told before any run, and where the case is
measured by its seconds. With 0 rounds a case is told and not run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.datasets.csbm_tasks import CsbmTask
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.he.row_sealer import Cost
from fglaudit.interfaces import Defense, FederatedProtocol, Trained
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import MessageBatch, payload_type
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

KEY = ("protocol", "dataset", "nodes", "clients", "payload", "rounds")
VALUES = (
    "releases",
    "ciphertexts_up",
    "ciphertexts_down",
    "megabytes_up",
    "megabytes_down",
    "encrypt_seconds",
    "server_seconds",
    "decrypt_seconds",
    "largest_weight_difference",
    "accuracy_clear",
    "accuracy_encrypted",
    "training_rounds",
    "training_gigabytes",
    "training_hours",
)
CPU = torch.device("cpu")


class Case(NamedTuple):
    """One payload of a protocol on some data, trained for ``rounds``; with 0 rounds its size is told alone."""

    protocol: FederatedProtocol
    data: DatasetSpec
    partition: PartitionSpec
    payload: str
    rounds: int


def cases() -> list[Case]:
    """Return all of them, cheap ones first."""
    tiny = CsbmOptions(nodes=30, edges=40, classes=3, dimensions=60, ones_per_row=6, homophily=0.8, degree_exponent=0.4)
    small = DatasetSpec("csbm", csbm=tiny, split="random", train=0.4, val=0.2, test=0.4)
    cora, ten = DatasetSpec("csbm-cora"), PartitionSpec("dirichlet", 10, 10000.0)
    one_each = PartitionSpec("per-node")
    found = [
        Case(FedGCN(hops=1), cora, ten, "ModelUpdate", 10),
        Case(FedGAT(path="matrices"), small, PartitionSpec("dirichlet", 3, 10000.0), "RawFeatures", 2),
        Case(FedGAT(), cora, ten, "RawFeatures", 0),
    ]
    for nodes in (50, 100, 200):
        data = DatasetSpec("csbm-dnc", task=CsbmTask(nodes=nodes))
        found += [Case(GFLAPPNP(), data, one_each, payload, 1) for payload in ("HiddenRepresentations", "Jacobians")]
    return found


def run(results: Path) -> None:
    """Measure what is missing in ``results/encryption_protocols.csv``, then print the table."""
    table = Table(results / "encryption_protocols.csv", KEY, VALUES)
    for case in cases():
        graph = load(case)
        key = {
            "protocol": type(case.protocol).name,
            "dataset": case.data.name,
            "nodes": graph.num_nodes,
            "clients": graph.num_clients,
            "payload": case.payload,
            "rounds": case.rounds,
        }
        if not table.has(key):
            table.add({**key, **measure(case, graph)})
            print(*table.rows()[-1].values(), flush=True)
    for row in table.rows():
        print(*(f"{name}={value}" for name, value in row.items() if value))


def load(case: Case) -> FederatedGraph:
    """Return the case's graph."""
    return case.partition.apply(case.data.load(), case.data, derive(0, "partition"))


def measure(case: Case, graph: FederatedGraph) -> dict[str, str]:
    """Return the figures of one case."""
    payload = payload_type(case.payload)
    whole = Cost.of(case.protocol.aggregates(graph)[payload])
    told: dict[str, Any] = {
        "ciphertexts_up": whole.ciphertexts_up,
        "ciphertexts_down": whole.ciphertexts_down,
        "training_rounds": case.protocol.num_rounds,
        "training_gigabytes": f"{whole.gigabytes_up + whole.gigabytes_down:.4g}",
        "training_hours": f"{whole.seconds / 3600:.3g}",
    }
    if case.rounds == 0:
        return dict.fromkeys(VALUES, "") | told
    protocol: FederatedProtocol = dataclasses.replace(case.protocol, rounds=case.rounds)  # type: ignore[type-var]
    clear, _, _ = train(protocol, graph, NoDefense())
    defense = HomomorphicEncryption(scheme="ckks", on=(case.payload,), most_gigabytes=float("inf"))
    encrypted, seconds, channel = train(protocol, graph, defense)
    releases = Cost.of(protocol.aggregates(graph)[payload]).releases
    up, down = (megabytes / releases for megabytes in channel.sealed)
    difference = max(float((encrypted.weights[k] - w).abs().max().item()) for k, w in clear.weights.items())
    return told | {
        "releases": str(releases),
        "megabytes_up": f"{up:.4g}",
        "megabytes_down": f"{down:.4g}",
        **{f"{name}_seconds": f"{value / releases:.3g}" for name, value in seconds.items()},
        "largest_weight_difference": f"{difference:.2g}",
        "accuracy_clear": f"{clear.whole_test_set:.4f}",
        "accuracy_encrypted": f"{encrypted.whole_test_set:.4f}",
        "training_hours": f"{sum(seconds.values()) / releases * whole.releases / 3600:.3g}",
    }


class _Channel(RecordingChannel):
    """Counts megabytes of ciphertexts by direction."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sealed = [0.0, 0.0]

    def _count(self, batch: MessageBatch) -> None:
        super()._count(batch)
        self.sealed[int((batch.receivers >= 0).all())] += float(batch.sealed_bytes().sum().item()) / 1e6


def train(
    protocol: FederatedProtocol, graph: FederatedGraph, defense: Defense
) -> tuple[Trained, dict[str, float], _Channel]:
    """Return the outcome, process time by kind of work on ciphertexts, and the channel."""
    session = defense.bind(protocol.context(graph))
    seconds = {"encrypt": 0.0, "server": 0.0, "decrypt": 0.0}

    def time_calls(owner: Any, name: str, kind: str) -> None:
        called: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any) -> Any:
            started = time.process_time()
            done = called(*args)
            seconds[kind] += time.process_time() - started
            return done

        setattr(owner, name, timed)

    time_calls(session, "seal", "encrypt")
    time_calls(session, "unseal", "decrypt")
    for sealer in getattr(session, "sealers", {}).values():
        time_calls(sealer.scheme, "total", "server")
        time_calls(sealer.scheme, "weighted", "server")
    channel = _Channel(session, graph.num_clients, derive(0, "defense"))
    trained = protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)
    return trained, seconds, channel
