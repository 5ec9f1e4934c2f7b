"""What uploads tell of a client altogether, on Cora: label shares of its training nodes, and its mean degree.

FedGCN, 10 clients, the first five rounds; the server knows all edges, and two rows and labels in ten. ``overlap``,
``cosine`` and ``control`` are of attack learned-label-shares. ``ratio``, the smaller of true and decoded mean degree
over the larger one, and its control, the mean degree of the graph, are of a decoder of mean degrees, which is no
attack. ``shares`` and ``degrees`` are the shares of the variance within shadow federations that the decoders explain
in federations that they did not learn from: of label shares, and of the logarithms of mean degrees.

``update-properties.csv`` has a row per case and seed. ``python -m bench update-properties``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fglaudit.attacks.models.learned_label_shares import LearnedLabelShares
from fglaudit.attacks.models.property_decoder import DIRECTIONS, SKETCHES, STATISTICS, deviations, explained
from fglaudit.attacks.models.shadow_clients import shadow_clients
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Inference
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.quantities.clients.training_labels import TrainingLabels
from fglaudit.recording import Kept, record_training
from fglaudit.registry import build
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.view import Observer
from fglaudit.wire.channel import Keep

KEY = ("partition", "training", "seed")
VALUES = ("overlap", "control", "cosine", "shares", "ratio", "ratio_control", "degrees")
CLIENTS, KNOWN = 10, 0.2
PARTITIONS = {
    "dirichlet 1": PartitionSpec("dirichlet", CLIENTS, 1.0),
    "dirichlet 10000": PartitionSpec("dirichlet", CLIENTS, 10000.0),
    "louvain": PartitionSpec("louvain", CLIENTS),
}
TRAININGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "adam": {"optimizer": "adam", "learning_rate": 0.01},
}


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing, and print it."""
    table = Table(results / "update-properties.csv", KEY, VALUES)
    spec = DatasetSpec(name="cora", root=root)
    whole, _ = spec.load_with_notes()
    for name, partition in PARTITIONS.items():
        for training, settings in TRAININGS.items():
            for seed in range(seeds):
                key = {"partition": name, "training": training, "seed": seed}
                if not table.has(key):
                    graph = partition.apply(whole, spec, derive(seed, "partition"))
                    table.add({**key, **measured(graph, settings, seed)})
                    print(*table.rows()[-1].values(), sep=" | ", flush=True)


def measured(graph: FederatedGraph, settings: dict[str, Any], seed: int) -> dict[str, str]:
    """Return the figures of one training."""
    attack, cpu = LearnedLabelShares(), torch.device("cpu")
    protocol = build("protocol", "fedgcn", {"hops": 2, "rounds": attack.rounds + 1, **settings})
    keep = Keep({ModelUpdate: attack.rounds})
    recording, truth = record_training(
        graph, protocol, NoDefense(), seed=seed, keep=Kept(messages=keep, fractions=(KNOWN,))
    )
    observer, kind = Observer(parties=(SERVER,), topology=True, auxiliary=KNOWN), TrainingLabels()
    view, (facts,) = recording.view(observer), truth.about([observer], False)
    question = kind.ask(facts)
    if isinstance(question, str):
        raise RuntimeError(question)
    found = shadow_clients(view, attack.federations, attack.rounds, derive(seed, "attack"), cpu)
    result = Inference(kind.name, found.attacked.clients, attack.answer(view, found))
    guess = kind.guess(view, question.subjects, derive(seed, "guess"))
    scored, control = kind.score(question, result, guess), kind.score(question, guess, guess)
    logarithms, sets = found.degrees.log()[:, None], (SKETCHES, DIRECTIONS, STATISTICS)
    degrees = graph.degrees().double()
    true = torch.stack([degrees[graph.clients[k]].mean() for k in found.attacked.clients.tolist()])
    mean = degrees.mean()
    decoded = mean * deviations(found, logarithms, sets)[:, 0].exp()
    figures = {
        "overlap": float(scored.values.mean().item()),
        "control": float(control.values.mean().item()),
        "cosine": scored.columns["cosine"],
        "shares": explained(found, found.shares, (SKETCHES, DIRECTIONS)),
        "ratio": _ratio(decoded, true),
        "ratio_control": _ratio(mean.expand_as(true), true),
        "degrees": explained(found, logarithms, sets),
    }
    return {name: f"{value:.4g}" for name, value in figures.items()}


def _ratio(one: Tensor, other: Tensor) -> float:
    return float((torch.minimum(one, other) / torch.maximum(one, other)).mean().item())
