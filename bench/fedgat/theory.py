"""FedGAT's Theorems 2-5 against measurement: errors of the series, the attention coefficients, and the embeddings of
both layers.

Every model is evaluated with exact attention and with the series on [-2, 2], on Cora with feature rows of norm at most
1:

* ``bounds``: random weights at the bounds of Assumption 2 (every singular value of W is 1, and the norm of a_1 and
  a_2);
* ``initial``: as training starts;
* ``trained-bounded``: FedGAT trained over 10 clients within Assumption 2 (``bounds: all``);
* ``trained``: FedGAT trained with its defaults, which keep scores in the domain but not the norms of Assumption 2
  (``largest_norm``): the conditions of Theorems 4 and 5 fail.

For every degree p the table gives

* Theorem 2 with k = 1 (LeakyReLU's derivative jumps, so no larger k applies): largest error of the series and
  ``2 V / (pi (p - 1))``, with V the variation of the derivative, both on [-2, 2];
* epsilon: largest ``|ehat_ij - e_ij|`` over edges and heads;
* Theorem 3: largest ``|alphahat - alpha| / alpha`` and its ratio to ``2 eps / (1 - eps)``. The proof divides by
  ``e_ij >= 1``, which negative arguments break (``share_below_one``); a ratio above 1 is a violation. ``repaired`` is
  the ratio with ``eps / min e_ij`` for eps, ``worst`` the ratio that any neighbourhood with scores in [-2, 2] could
  reach;
* Theorem 4: largest ``||hhat_i - h_i||`` per head over ``2 eps / (1 - eps)``;
* Theorem 5: largest error of the second layer over ``eps' + delta`` of (15)-(17), c = e, delta being the largest
  first-layer error.

``python -m bench theory`` also draws the figure of docs/fedgat-theory.svg (``theory_figure.py``) beside the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from bench.fedgat.theory_figure import draw
from fglaudit.context import Context
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import Graph, whole
from fglaudit.nn.chebyshev import attention_function, attention_series
from fglaudit.nn.gat import (
    GatShape,
    LayerWeights,
    attend,
    edge_scores,
    initial_model,
    layer_weights,
    project,
    series_scores,
    softmax_scores,
    unit_ball,
)
from fglaudit.nn.weights import unflatten
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgat.gat_field import Clients
from fglaudit.protocols.fedgat.gat_plan import edge_layer
from fglaudit.protocols.fedgat.gat_training import joined
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

DEGREES = (4, 8, 16, 32, 64)
MODELS = ("bounds", "initial", "trained-bounded", "trained")
DOMAIN = 2.0
KEY = ("dataset", "model", "degree")
VALUES = (
    "largest_norm",
    "largest_score",
    "series_error",
    "theorem_2",
    "epsilon",
    "share_below_one",
    "coefficient_error",
    "theorem_3_ratio",
    "repaired_ratio",
    "worst_ratio",
    "layer_1_error",
    "theorem_4_ratio",
    "layer_2_error",
    "theorem_5_ratio",
)


def theorem_2(degree: int) -> float:
    """The bound ``2 V / (pi k (p - k)^k)`` for k = 1 on [-R, R], with V the variation of the derivative of ``f(R t)``
    on [-1, 1]."""
    left = 0.2 * (1 - math.exp(-0.2 * DOMAIN))
    variation = DOMAIN * (left + 0.8 + math.exp(DOMAIN) - 1)
    return 2 * variation / (math.pi * (degree - 1))


def run(results: Path, root: str | None) -> None:
    """Measure every model and degree once, print the table and draw it; they go to
    ``results/fedgat_theory.{csv,svg}``."""
    table = Table(results / "fedgat_theory.csv", KEY, VALUES)
    for model in MODELS:
        missing = [p for p in DEGREES if not table.has({"dataset": "cora", "model": model, "degree": p})]
        if missing:
            for row in measure(model, missing, root):
                named = {name: f"{value:.4g}" for name, value in row.items() if name != "degree"}
                table.add({"dataset": "cora", "model": model, "degree": int(row["degree"]), **named})
    print(*KEY, *VALUES)
    for line in table.rows():
        print(*line.values())
    (results / "fedgat_theory.svg").write_text(draw(table.rows()))


def weights_of(model: str, graph: Graph, root: str | None) -> Mapping[str, Tensor]:
    """Return the weights [1, ...] of one of ``MODELS``, float64."""
    layout = GatShape(2, 8, 8, 1).layout(graph.num_features, graph.num_classes)
    vector = initial_model(layout, derive(0, "theory")).double().unsqueeze(0)
    if model == "bounds":
        weights = unflatten(100 * vector, layout)
        project(weights, 2)  # all norms are now at their bounds
        return weights
    if model == "initial":
        return unflatten(vector, layout)
    spec = DatasetSpec("cora", root=root, features="raw")
    split = PartitionSpec("dirichlet", 10, 10000.0).apply(spec.load(), spec, derive(0, "partition"))
    protocol = FedGAT(bounds="all" if model == "trained-bounded" else "scores")
    context = Context(protocol.name, protocol.rounds, split.num_clients, split.num_features, ())
    channel = RecordingChannel(NoDefense().bind(context), split.num_clients, derive(0, "defense"))
    trained = protocol.train(split, channel, rng=derive(0, "train"), device=torch.device("cpu"))
    return {name: weight.double().unsqueeze(0) for name, weight in trained.weights.items()}


def largest_norm(layers: list[LayerWeights]) -> float:
    """Return the largest norm that Assumption 2 bounds by 1: of W per head, a_1, a_2."""
    norms = [torch.linalg.matrix_norm(layer.per_head().movedim(2, 1), 2).max() for layer in layers]
    norms += [vector.norm(dim=-1).max() for layer in layers for vector in (layer.own, layer.neighbor)]
    return float(torch.stack(norms).max().item())


def measure(model: str, degrees: list[int], root: str | None) -> Iterator[dict[str, float]]:
    """Yield one row per degree."""
    graph = DatasetSpec("cora", root=root, features="raw").load()
    every = torch.ones(graph.num_nodes, dtype=torch.bool)
    federated = whole(graph, every, every, every)
    edges = KeptEdges.of([federated.client(0)], graph.degrees())
    clients = Clients(edges, graph.y, 1)
    field = clients.field(clients.needed(clients.own(every), 2, "compute"), ())
    x = unit_ball(graph.x.double())
    first, second = layer_weights(weights_of(model, graph, root))
    layer = edge_layer(field, x, softmax_scores, 1)
    z = layer.transformed(first)
    scores = edge_scores(z, first, field.first)
    e, target = attention_function(scores), field.first.target

    def normalised(values: Tensor) -> Tensor:
        total = values.new_zeros(graph.num_nodes, values.shape[1]).index_add(0, target, values)
        return values / total.index_select(0, target)

    def last(means: Tensor) -> Tensor:
        own = joined(means)
        padding = own.new_zeros(1, field.later[0].remote_size, own.shape[2])
        z2 = second.transform(torch.cat([own, padding], 1))
        return attend(z2, second, field.later[0].edges, softmax_scores)

    exact, alpha = layer(first), normalised(e)
    exact_last = last(exact)
    grid = torch.linspace(-DOMAIN, DOMAIN, 200001, dtype=torch.float64)
    for degree in degrees:
        series = attention_series(degree, DOMAIN)
        approximate = attend(z, first, field.first, series_scores(series))
        epsilon = float((series(scores) - e).abs().max())
        relative = float(((normalised(series(scores)) - alpha).abs() / alpha).max())
        smallest = epsilon / float(e.min())
        sup = float((series(grid) - attention_function(grid)).abs().max())
        quotient = series(grid) / attention_function(grid)
        delta = float((joined(approximate) - joined(exact)).norm(dim=-1).max())
        per_head = float((torch.nn.functional.elu(approximate) - torch.nn.functional.elu(exact)).norm(dim=-1).max())
        error = float((last(approximate) - exact_last).norm(dim=-1).max())
        passed_on = 2 * math.e * delta
        yield {
            "degree": degree,
            "largest_norm": largest_norm([first, second]),
            "largest_score": float(scores.abs().max()),
            "series_error": sup,
            "theorem_2": theorem_2(degree),
            "epsilon": epsilon,
            "share_below_one": float((e < 1).double().mean()),
            "coefficient_error": relative,
            "theorem_3_ratio": relative / (2 * epsilon / (1 - epsilon)),
            "repaired_ratio": relative / (2 * smallest / (1 - smallest)),
            "worst_ratio": float(quotient.max() / quotient.min() - 1) / (2 * sup / (1 - sup)),
            "layer_1_error": per_head,
            "theorem_4_ratio": per_head / (2 * epsilon / (1 - epsilon)),
            "layer_2_error": error,
            "theorem_5_ratio": error / (2 * passed_on / (1 - passed_on) + delta),
        }
