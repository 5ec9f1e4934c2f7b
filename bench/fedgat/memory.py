"""Peak memory of FedGAT's matrix path as an audit runs it: pre-training by all clients, messages to one client
recorded, then attacked.

Unlike ``fedgat-attacks``, which makes messages as the attack reads them, this goes through the protocol, the channel
and a transcript on disk, and keeps what clients need to train from the matrices. Nothing is trained.
"""

from __future__ import annotations

import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Reconstruction, Trained
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import MaskedMatrices
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.quantities.rows.game import Game, score
from fglaudit.recording import Kept, record_training
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.view import Observer
from fglaudit.wire.channel import Keep

KEY = ("dataset", "clients", "threads")
VALUES = (
    "targets",
    "exact_matched",
    "sent_gb",
    "recorded_gb",
    "batches",
    "largest_batch_gb",
    "cpu_seconds",
    "peak_rss_gb",
)


@dataclass(frozen=True)
class PreTraining(FedGAT):
    """FedGAT up to its first round; no accuracy comes of it."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.prepare(graph, channel, rng, device)
        nothing = torch.full((1, graph.num_clients), torch.nan)
        return Trained(nothing, nothing[:, 0], {})


def run(results: Path, root: str | None, dataset: str = "pubmed", clients: int = 3) -> None:
    """Measure once; the row goes to ``results/fedgat_memory.csv``."""
    table = Table(results / "fedgat_memory.csv", KEY, VALUES)
    key = {"dataset": dataset, "clients": clients, "threads": torch.get_num_threads()}
    if not table.has(key):
        table.add({**key, **measure(dataset, root, clients)})
    for row in table.rows():
        print(*(f"{name}={value}" for name, value in row.items()))


def measure(dataset: str, root: str | None, clients: int) -> dict[str, str]:
    """Pre-train, record what client 0 receives, attack it."""
    started = time.process_time()
    spec, cpu = DatasetSpec(dataset, root=root), torch.device("cpu")
    graph = PartitionSpec("dirichlet", clients, 10000.0).apply(spec.load(), spec, derive(0, "partition"))
    observer = Observer((0,))
    with tempfile.TemporaryDirectory(prefix="fglaudit-") as folder:
        keep = Keep.for_attacks([observer], [JointDiagonalisation()])
        recording, truth = record_training(
            graph, PreTraining(), NoDefense(), keep=Kept(messages=keep, clients=observer.clients, folder=Path(folder))
        )
        sizes = [path.stat().st_size for path in Path(folder).iterdir()]
        result = JointDiagonalisation().run(recording.view(observer), rng=derive(0, "attack"), device=cpu)
        assert isinstance(result, Reconstruction)
        found = score([Game.of(asked) for asked in truth.about([observer], False)], [result])
        batches = sum(entry.payload == MaskedMatrices.__name__ for entry in recording.transcript.entries)
    return {
        "targets": str(len(found.rows.exact_rate)),
        "exact_matched": f"{found.matched_rate:.5f}",
        "sent_gb": f"{recording.columns['bytes_down'] / 1e9:.2f}",
        "recorded_gb": f"{sum(sizes) / 1e9:.2f}",
        "batches": str(batches),
        "largest_batch_gb": f"{max(sizes) / 1e9:.2f}",
        "cpu_seconds": f"{time.process_time() - started:.0f}",
        "peak_rss_gb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f}",
    }
