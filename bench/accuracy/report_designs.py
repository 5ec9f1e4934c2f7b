"""What a node may say of its row in a report at epsilon 4: the class, or more.

``private-reports`` sends the predicted class. Here other reports are made of the same encoder's logits, by k-ary
response over as many symbols as each has, propagated and put beside public codes as the protocol does; the head is the
one that ``bench frontier`` chose for CiteSeer. Accuracy is on *validation* nodes, so that a design may be chosen by it.

Two designs without noise bound what is left to gain: the class, and all of its probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bench.accuracy.frontier import HEADS, validated
from fglaudit.federated.home_head import HomeHead, joined
from fglaudit.federated.hop_exchange import HopExchange
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.nn.codes import public_codes
from fglaudit.nn.responses import response_matrix
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

EPSILON = 4.0
HEAD = HEADS[4]
REPORT_HOPS = (4, 8, 16)
LESS_SURE = 0.3
"""Weight of a report that says that its class is not sure."""
SHARPNESS = 1.5
"""By which logits, of spread 1 over training nodes, are multiplied before they are made probabilities."""
ENCODER_ROUNDS, ROUNDS = 20, 30


def run(results: Path, root: str | None, seeds: int, dataset: str = "citeseer") -> None:
    """Measure every design on ``seeds`` partitions; print means in Markdown."""
    table = Table(results / "report-designs.csv", ("dataset", "design", "seed"), ("accuracy",))
    for seed in range(seeds):
        if table.has({"dataset": dataset, "design": "codes alone", "seed": seed}):
            continue
        for name, accuracy in measured(validated(dataset, root, seed), seed):
            table.add({"dataset": dataset, "design": name, "seed": seed, "accuracy": accuracy})
            print(dataset, name, seed, f"{100 * accuracy:.1f} %", flush=True)
    rows = [row for row in table.rows() if row["dataset"] == dataset]
    print(f"\n| report on {dataset} | seeds | validation nodes |\n|---|---|---|")
    for name in dict.fromkeys(row["design"] for row in rows):
        found = [float(row["accuracy"]) for row in rows if row["design"] == name]
        print(f"| {name} | {len(found)} | {100 * math.fsum(found) / len(found):.1f} |")


def measured(graph: FederatedGraph, seed: int) -> Iterator[tuple[str, float]]:
    """Yield every design and its accuracy; "codes alone" last."""
    clients = [graph.client(k) for k in range(graph.num_clients)]
    edges, classes = KeptEdges.of(clients, graph.degrees()), graph.num_classes
    exchange = HopExchange.of(edges, graph.num_clients)
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(seed, "defense"))
    cpu, noise = torch.device("cpu"), derive(seed, "responses")

    def propagated(rows: Tensor, hops: tuple[int, ...]) -> Tensor:
        return joined(exchange.steps(rows, exchange.public(rows), hops, channel))

    def head(rounds: int) -> HomeHead:
        return HomeHead("own-row", HEAD["home_weight"], rounds, 3, 5.0, HEAD["weight_decay"])

    def reached(*inputs: Tensor) -> float:
        rows = torch.cat(inputs, 1)
        return head(ROUNDS).train(clients, edges, rows, classes, channel, derive(seed, "train")).whole_test_set

    codes = propagated(public_codes(graph.num_nodes, HEAD["width"], seed), HEAD["hops"])
    home = head(1).home(clients, graph.num_nodes, cpu)
    encoder = head(ENCODER_ROUNDS).train(clients, edges, home, classes, channel, derive(seed, "encoder"))
    logits = home @ encoder.weights["layers.0.weight"]
    train = torch.cat([client.nodes[client.train] for client in clients])
    logits = logits - logits.mean(1, keepdim=True)
    logits = logits / logits[train].std()
    for name, (symbols, said) in designs(logits).items():
        sent = torch.multinomial(response_matrix(EPSILON, len(symbols))[said], 1, generator=noise).squeeze(1)
        yield f"{name}, at {EPSILON:g}", reached(propagated(symbols[sent], REPORT_HOPS), codes, home)
    probabilities = (SHARPNESS * logits).softmax(1)
    clear = {"the class": one_hot(logits.argmax(1), classes).float(), "probabilities": probabilities}
    for name, rows in clear.items():
        yield f"{name}, in the clear", reached(propagated(rows - 1 / classes, REPORT_HOPS), codes, home)
    yield "codes alone", reached(codes, home)


def designs(logits: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return, by name, what each symbol stands for [S, C] and which one every node says [N], from ``logits`` [N, C]."""
    classes = logits.shape[1]
    top = logits.topk(2, dim=1)
    first, second = top.indices.unbind(1)
    ahead = top.values[:, 0] - top.values[:, 1]
    alone = torch.eye(classes) - 1 / classes
    nothing = torch.zeros(1, classes)
    pairs = (0.7 * torch.eye(classes).unsqueeze(1) + 0.3 * torch.eye(classes)).flatten(0, 1) - 1 / classes
    said: dict[str, tuple[Tensor, Tensor]] = {"the class": (alone, first)}
    for margin in (0.3, 0.6):
        sure = ahead > margin
        levels = torch.cat([alone, LESS_SURE * alone])
        said[f"the class and whether it is {margin:g} ahead"] = (levels, first + classes * (~sure).long())
        unsure = torch.cat([alone, nothing])
        said[f'the class if it is {margin:g} ahead, else "unsure"'] = (unsure, torch.where(sure, first, classes))
    said["the two likeliest classes, in order"] = (pairs, classes * first + second)
    return said
