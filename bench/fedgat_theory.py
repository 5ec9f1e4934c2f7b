"""FedGAT's Theorems 2-5 against measurement: errors of the series, the attention coefficients, and the embeddings of both layers.

One random model at the bounds of Assumption 2 (every singular value of W is 1, and the norm of a_1 and a_2) is evaluated with exact
attention and with the series on [-2, 2], on Cora with feature rows of norm at most 1. For every degree p the table gives

* Theorem 2 with k = 1 (LeakyReLU's derivative jumps, so no larger k applies): largest error of the series and ``2 V / (pi (p - 1))``,
  with V the variation of the derivative, both on [-2, 2];
* epsilon: largest ``|ehat_ij - e_ij|`` over edges and heads;
* Theorem 3: largest ``|alphahat - alpha| / (alpha 2 eps / (1 - eps))``. Its proof divides by ``e_ij >= 1``, which negative arguments
  break (``share_below_one``); a ratio above 1 is a violation. ``repaired`` is the ratio with ``eps / min e_ij`` for eps;
* Theorem 4: largest ``||hhat_i - h_i||`` per head over ``2 eps / (1 - eps)``;
* Theorem 5: largest error of the second layer over ``eps' + delta`` of (15)-(17), c = e, delta being the largest first-layer error.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from bench.table import Table
from fglaudit.datasets import DatasetSpec
from fglaudit.graph import whole
from fglaudit.nn.chebyshev import attention_function, attention_series
from fglaudit.nn.gat import GatShape, attend, edge_scores, initial_model, layer_weights, project, series_scores, softmax_scores
from fglaudit.nn.gat_field import Clients
from fglaudit.nn.gat_plan import edge_layer, unit_ball
from fglaudit.nn.gat_training import joined
from fglaudit.nn.neighborhood import KeptEdges
from fglaudit.nn.weights import unflatten
from fglaudit.rng import derive

DEGREES = (4, 8, 16, 32, 64)
DOMAIN = 2.0
KEY = ("dataset", "degree")
VALUES = (
    "series_error",
    "theorem_2",
    "epsilon",
    "share_below_one",
    "theorem_3_ratio",
    "repaired_ratio",
    "layer_1_error",
    "theorem_4_ratio",
    "layer_2_error",
    "theorem_5_ratio",
)


def theorem_2(degree: int) -> float:
    """The bound ``2 V / (pi k (p - k)^k)`` for k = 1 on [-R, R], with V the variation of the derivative of ``f(R t)`` on [-1, 1]."""
    left = 0.2 * (1 - math.exp(-0.2 * DOMAIN))
    variation = DOMAIN * (left + 0.8 + math.exp(DOMAIN) - 1)
    return 2 * variation / (math.pi * (degree - 1))


def run(results: Path, root: str | None) -> None:
    """Measure every degree once and print the table; it goes to ``results/fedgat_theory.csv``."""
    table = Table(results / "fedgat_theory.csv", KEY, VALUES)
    missing = [degree for degree in DEGREES if not table.has({"dataset": "cora", "degree": degree})]
    if missing:
        for row in measure(missing, root):
            table.add({"dataset": "cora", **{name: f"{value:.4g}" for name, value in row.items()}})
    print(*KEY, *VALUES)
    for line in table.rows():
        print(*line.values())


def measure(degrees: list[int], root: str | None) -> list[dict[str, float]]:
    """Return one row per degree."""
    graph = DatasetSpec("cora", root=root, features="raw").load()
    every = torch.ones(graph.num_nodes, dtype=torch.bool)
    federated = whole(graph, every, every, every)
    edges = KeptEdges.of([federated.client(0)], graph.degrees())
    clients = Clients(edges, graph.y, 1)
    field = clients.field(clients.needed(clients.own(every), 2, "compute"), ())
    x = unit_ball(graph.x.double())
    layout = GatShape(2, 8, 8, 1).layout(graph.num_features, graph.num_classes)
    weights = unflatten(100 * initial_model(layout, derive(0, "theory")).double().unsqueeze(0), layout)
    project(weights, 2)  # all norms are now at their bounds
    first, second = layer_weights(weights)
    layer = edge_layer(field, x, softmax_scores, 1)
    z = layer.transformed(first)
    scores = edge_scores(z, first, field.first)
    e, target = attention_function(scores), field.first.target

    def normalised(values: torch.Tensor) -> torch.Tensor:
        total = values.new_zeros(graph.num_nodes, values.shape[1]).index_add(0, target, values)
        return values / total.index_select(0, target)

    def last(means: torch.Tensor) -> torch.Tensor:
        own = joined(means)
        padding = own.new_zeros(1, field.later[0].remote_size, own.shape[2])
        z2 = second.transform(torch.cat([own, padding], 1))
        return attend(z2, second, field.later[0].edges, softmax_scores)

    exact, alpha = layer(first), normalised(e)
    exact_last = last(exact)
    grid = torch.linspace(-DOMAIN, DOMAIN, 200001, dtype=torch.float64)
    rows = []
    for degree in degrees:
        series = attention_series(degree, DOMAIN)
        approximate = attend(z, first, field.first, series_scores(series))
        epsilon = float((series(scores) - e).abs().max())
        relative = (normalised(series(scores)) - alpha).abs() / alpha
        smallest = epsilon / float(e.min())
        delta = float((joined(approximate) - joined(exact)).norm(dim=-1).max())
        per_head = float((torch.nn.functional.elu(approximate) - torch.nn.functional.elu(exact)).norm(dim=-1).max())
        error = float((last(approximate) - exact_last).norm(dim=-1).max())
        passed_on = 2 * math.e * delta
        rows.append(
            {
                "degree": degree,
                "series_error": float((series(grid) - attention_function(grid)).abs().max()),
                "theorem_2": theorem_2(degree),
                "epsilon": epsilon,
                "share_below_one": float((e < 1).double().mean()),
                "theorem_3_ratio": float(relative.max()) / (2 * epsilon / (1 - epsilon)),
                "repaired_ratio": float(relative.max()) / (2 * smallest / (1 - smallest)),
                "layer_1_error": per_head,
                "theorem_4_ratio": per_head / (2 * epsilon / (1 - epsilon)),
                "layer_2_error": error,
                "theorem_5_ratio": error / (2 * passed_on / (1 - passed_on) + delta),
            }
        )
    return rows
