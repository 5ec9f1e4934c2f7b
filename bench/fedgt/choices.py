"""What FedGT's paper leaves open, compared on validation nodes: Cora, 10 clients, not overlapping, seeds that no table
uses.

* The scale of FedGT's first global nodes, without noise and with the paper's: best validation accuracy, and how many of
  a client's 10 global nodes are the nearest of some node after the last round.
* Dropout, learning rate and number of ego-graphs of the graph transformers that FedAvg trains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.protocols.baselines.fedavg_gophormer import FedAvgGophormer
from fglaudit.protocols.baselines.fedavg_graphgps import FedAvgGraphGPS
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.reproduce.measurements import Table
from fglaudit.reproduce.papers import fedgt
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

KEY = ("method", "settings", "noise", "seed")
VALUES = ("validation", "round", "used_global_nodes")
TRAINEES: dict[str, type[FederatedProtocol]] = {
    "fedgt": FedGT,
    "fedavg-graphgps": FedAvgGraphGPS,
    "fedavg-gophormer": FedAvgGophormer,
}
TRANSFORMERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fedavg-graphgps", {}),
    ("fedavg-graphgps", {"dropout": 0.2}),
    ("fedavg-graphgps", {"learning_rate": 3e-3}),
    ("fedavg-gophormer", {}),
    ("fedavg-gophormer", {"samples": 2, "consistency": 1.0}),
)


class Choice(NamedTuple):
    method: str
    settings: dict[str, Any]
    noise: bool
    seed: int

    def key(self) -> dict[str, object]:
        """Return the columns that identify it."""
        written = " ".join(f"{name}={value:g}" for name, value in self.settings.items())
        return {**self._asdict(), "settings": written or "defaults", "noise": "paper" if self.noise else "none"}


def choices() -> Iterator[Choice]:
    """Yield all comparisons."""
    for noise in (False, True):
        for seed in (0, 1):
            for scale in (1.0, 0.01):
                yield Choice("fedgt", {"global_scale": scale}, noise, seed)
    for method, settings in TRANSFORMERS:
        yield Choice(method, settings, noise=False, seed=0)


def run(results: Path, root: str | None) -> None:
    """Measure what is missing in ``results/fedgt_choices.csv``."""
    table = Table(results / "fedgt_choices.csv", KEY, VALUES)
    for choice in choices():
        if not table.has(choice.key()):
            graph = fedgt.federated("cora", "non-overlapping", 10, choice.seed, root)
            table.add({**choice.key(), **measure(choice, graph)})
            print(*table.rows()[-1].values(), flush=True)


def measure(choice: Choice, graph: FederatedGraph) -> dict[str, str]:
    """Train once; no test node is looked at."""
    graph = dataclasses.replace(graph, test=graph.val)
    trainee = TRAINEES[choice.method](**choice.settings)
    session = (fedgt.NOISE if choice.noise else NoDefense()).bind(trainee.context(graph))
    channel = RecordingChannel(session, graph.num_clients, derive(choice.seed, "defense"))
    trained = trainee.train(graph, channel, rng=derive(choice.seed, "train"), device=torch.device("cpu"))
    used = [len(set(row[row >= 0].tolist())) for row in trained.truth.get("clusters", torch.empty(0))]
    return {
        "validation": f"{trained.client_mean:.4f}",
        "round": str(trained.round + 1),
        "used_global_nodes": f"{sum(used) / len(used):.1f}" if used else "",
    }
