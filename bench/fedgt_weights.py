"""FedGT between training alone and one average for all: sharpness tau, with the paper's noise, without, and with the
noise taken off the similarities. Cora, 5 clients, not overlapping, as in Table 1.

Accuracy as in ``bench.fedgt_tables``; ``own_weight`` is the weight of a client's own model in its average, mean over
clients and rounds. Without noise the global nodes start near the origin (``global_scale: 0.01``), as one of them takes
all nodes otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from bench.fedgt_tables import FIRST_SEED, Case, federated, noisy_channel
from fglaudit.graph import FederatedGraph
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive

KEY = ("noise", "debiased", "tau", "seed")
VALUES = ("accuracy", "own_weight", "round")
TAUS = (5.0, 1.0, 20.0, 100.0)
"""The paper's first."""


class Setting(NamedTuple):
    noise: bool
    debiased: bool
    tau: float
    seed: int


def settings(seeds: int) -> Iterator[Setting]:
    """Yield all measurements, seed by seed."""
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for tau in TAUS:
            yield Setting(noise=False, debiased=False, tau=tau, seed=seed)
            yield Setting(noise=True, debiased=False, tau=tau, seed=seed)
            yield Setting(noise=True, debiased=True, tau=tau, seed=seed)


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing in ``results/fedgt_weights.csv``."""
    table = Table(results / "fedgt_weights.csv", KEY, VALUES)
    for setting in settings(seeds):
        if not table.has(setting._asdict()):
            graph = federated(Case("cora", "non-overlapping", 5, "fedgt", setting.seed), root)
            table.add({**setting._asdict(), **measure(setting, graph)})
            print(*table.rows()[-1].values(), flush=True)


def measure(setting: Setting, graph: FederatedGraph, **fields: int) -> dict[str, str]:
    """Train once."""
    scale = 1.0 if setting.noise else 0.01
    trainee = FedGT(tau=setting.tau, debiased=setting.debiased, global_scale=scale, **fields)  # type: ignore[arg-type]
    channel = noisy_channel(trainee, graph, setting.seed, noise=setting.noise)
    trained = trainee.train(graph, channel, rng=derive(setting.seed, "train"), device=torch.device("cpu"))
    return {
        "accuracy": f"{trained.client_mean:.6f}",
        "own_weight": f"{float(trained.series['own_weight'].mean()):.4f}",
        "round": str(trained.round + 1),
    }
