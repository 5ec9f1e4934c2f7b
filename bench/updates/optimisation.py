"""What optimisation finds of first layers' inputs where the analytic attack refuses: FedGCN on Cora, 1 hop, 20 clients.

After Geiping et al. (NeurIPS 2020): rows and labels are searched for whose unrolled steps, SGD or Adam, change the
model as a client did, by the cosine of the two changes (first and last layer apart), with entries that are not negative
and few. Adam's steps are smoothed at first: as they are, nearly signs, there is no slope to follow. The search is told
how many rows a client has, which no observer is, and takes each as a training node without a neighbour in reach.
``update-inversion`` reads the same steps of SGD exactly, and is not applicable to Adam's.

``objective``: one minus the cosine, of both layers; ``cosine``: of found rows with the true ones, matched by hindsight;
``control``: of the graph's mean row; ``found``: share of rows with a cosine above 0.9999; ``rank_limit``: hidden units.
``update-optimisation.csv`` has a row per optimizer and client. ``python -m bench update-optimisation``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from fglaudit.adversary.uploads.held import sent_models
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.nn.weights import unflatten
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.recording import Kept, record_training
from fglaudit.registry import build
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.structure import Training
from fglaudit.view import Observer
from fglaudit.wire.channel import Keep

KEY = ("training", "client")
VALUES = ("rows", "rank_limit", "objective", "cosine", "control", "found")
CLIENTS, ASKED = 20, 6
COMMON: dict[str, Any] = {"hops": 1, "rounds": 1, "hidden": 16, "local_steps": 3, "dropout": 0.0}
TRAININGS: dict[str, dict[str, Any]] = {"sgd": {}, "adam": {"optimizer": "adam", "learning_rate": 0.01}}
STEPS, RATE, SPARSITY = 600, 0.1, 1e-4
SMOOTHEST, ADAM_EPSILON = 0.03, 1e-8
_DECAYS = 0.9, 0.999


class Layers(NamedTuple):
    """First [F, H] and last [H, C] weights, or changes of them."""

    first: Tensor
    last: Tensor


def unrolled(weights: Layers, rows: Tensor, labels: Tensor, stated: Training, epsilon: float) -> Layers:
    """Return the changes after the local steps on inputs ``rows`` [R, F] of the first layer with label distributions
    ``labels`` [R, C], through which gradients flow.

    Args:
        epsilon: Adam's; a larger one smooths its steps.
    """
    now = weights
    means, squares = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    for step in range(1, stated.local_steps + 1):
        before = rows @ now.first
        wrong = ((before.relu() @ now.last).softmax(1) - labels) / len(rows)
        back = (wrong @ now.last.T) * (before > 0)
        gradients = [rows.T @ back, before.relu().T @ wrong]
        moved = []
        for place, (weight, gradient) in enumerate(zip(now, gradients, strict=True)):
            gradient = gradient + stated.weight_decay * weight
            if stated.optimizer == "adam":
                means[place] = _DECAYS[0] * means[place] + (1 - _DECAYS[0]) * gradient
                squares[place] = _DECAYS[1] * squares[place] + (1 - _DECAYS[1]) * gradient**2
                size = squares[place] / (1 - _DECAYS[1] ** step) + epsilon**2
                gradient = means[place] / (1 - _DECAYS[0] ** step) / size.sqrt()
            moved.append(weight - stated.learning_rate * gradient)
        now = Layers(*moved)
    return Layers(now.first - weights.first, now.last - weights.last)


def searched(weights: Layers, seen: Layers, count: int, stated: Training, rng: torch.Generator) -> tuple[Tensor, float]:
    """Return ``count`` rows [R, F] whose unrolled steps change ``weights`` best as ``seen``, and what is left of one
    minus the cosine, summed over both layers."""
    classes = weights.last.shape[1]
    entries = (torch.randn(count, len(weights.first), generator=rng) * 0.1 - 3).requires_grad_()
    labels = (torch.randn(count, classes, generator=rng) * 0.1).requires_grad_()
    optimizer = torch.optim.Adam([entries, labels], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    blank = unrolled(weights, torch.zeros(1, len(entries[0])), torch.full((1, classes), 1 / classes), stated, 1e-8)
    # Words that no row has move by their decay alone.
    there = ((seen.first - blank.first).abs() > 1e-2 * stated.learning_rate).any(1)
    left = math.inf
    for step in range(STEPS):
        epsilon = SMOOTHEST * (ADAM_EPSILON / SMOOTHEST) ** (step / STEPS)
        rows = functional.softplus(entries) * there
        moved = unrolled(weights, rows, labels.softmax(1), stated, epsilon)
        apart = sum(
            (
                1 - functional.cosine_similarity(a.flatten(), b.flatten(), dim=0)
                for a, b in zip(moved, seen, strict=True)
            ),
            torch.zeros(()),
        )
        optimizer.zero_grad()
        loss = apart + SPARSITY * rows.sum(1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        left = float(apart.item())
    return (functional.softplus(entries) * there).detach(), left


def run(results: Path, root: str | None) -> None:
    """Measure what is missing, and print it."""
    table = Table(results / "update-optimisation.csv", KEY, VALUES)
    spec = DatasetSpec(name="cora", root=root)
    graph = PartitionSpec("dirichlet", CLIENTS, 10000.0).apply(spec.load_with_notes()[0], spec, derive(0, "partition"))
    for training, settings in TRAININGS.items():
        protocol = build("protocol", "fedgcn", {**COMMON, **settings})
        recording, _ = record_training(graph, protocol, NoDefense(), seed=0, keep=Kept(messages=Keep({ModelUpdate: 1})))
        view = recording.view(Observer(parties=(SERVER,)))
        clients, inputs = protocol.layer_inputs(graph, [graph.client(k) for k in range(CLIENTS)])
        uploading, models = next(iter(sent_models(view, 1)))
        layout, stated = view.public.layout, view.public.structure.of(Training)
        for client in uploading[:ASKED].tolist():
            key = {"training": training, "client": client}
            true = inputs[clients == client].float()
            if table.has(key) or not len(true):
                continue
            place = int((uploading == client).nonzero().item())
            received, change = (
                Layers(*(w[place] for w in unflatten(m.float(), layout).values()))
                for m in (models.received, models.change)
            )
            rows, left = searched(received, change, len(true), stated, derive(client, "optimisation"))
            alike = functional.normalize(rows, dim=1) @ functional.normalize(true, dim=1).T
            best = alike[linear_sum_assignment(-alike.numpy())]
            control = functional.normalize(true, dim=1) @ functional.normalize(graph.x.float().mean(0), dim=0)
            figures = {"objective": left, "cosine": float(best.mean().item()), "control": float(control.mean().item())}
            figures["found"] = float((best > 0.9999).float().mean().item())
            counts = {"rows": str(len(true)), "rank_limit": str(received.first.shape[1])}
            table.add({**key, **counts, **{name: f"{value:.4g}" for name, value in figures.items()}})
            print(*table.rows()[-1].values(), sep=" | ", flush=True)
