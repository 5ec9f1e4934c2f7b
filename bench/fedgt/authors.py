"""``python -m bench.fedgt.authors CLONE``: FedGT's published network itself, beside our ``source: code``.

``CLONE`` is a copy of ``zaixizhang/FedGT`` (ac35442), which is not part of this package. Its network, clustering and
alignment are imported; the loop of clients and server around them is ours, on the partition, split and row-normalised
features of the rows ``FedGT, as published code`` (:mod:`fglaudit.reproduce.papers.fedgt`), with the settings of the
authors' command line. Where a node reaches fewer than 25 others the rest is drawn from all nodes, as their loader does.

Printed are accuracies in percent, mean over clients, of the round with the best validation accuracy among those tested.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.graph import ClientGraph
from fglaudit.reproduce.papers import fedgt, fedgt_methods
from fglaudit.reproduce.published import Published
from fglaudit.rng import derive

NEIGHBORS, POWERS, RESTART, BATCH, TAU = 25, 6, 0.15, 64, 5.0
STAYS = ("running", "tracked")
"""Parts of the names of what a client keeps: statistics of its batches."""


@dataclass
class Client:
    """One client; its network is the authors'."""

    graph: ClientGraph
    model: Any
    optimizer: torch.optim.Adam
    near: Tensor
    scores: Tensor

    @staticmethod
    def of(graph: ClientGraph, model: Any, rate: float) -> Client:
        """Compute the powers of the propagation matrix [n, n, 6] and the scores [n, n] that neighbours are drawn by."""
        count = len(graph.nodes)
        edges = torch.zeros(count, count)
        edges[graph.edge_index[0], graph.edge_index[1]] = 1
        closed = edges + torch.eye(count)
        step = closed * closed.sum(1, keepdim=True).rsqrt() * closed.sum(1).rsqrt()
        powers = [step]
        for _ in range(POWERS - 1):
            powers.append(step @ powers[-1])
        columns = (edges / edges.sum(1).clamp(min=1)).double()
        scores = RESTART * torch.linalg.inv(torch.eye(count).double() - (1 - RESTART) * columns)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=1e-6)
        return Client(graph, model, optimizer, torch.stack(powers, 2), scores.clamp(min=1e-12))

    def batch(self, items: Tensor) -> SimpleNamespace:
        """Return sequences as the authors' loader makes them."""
        nodes = torch.cat([items.unsqueeze(1), torch.multinomial(self.scores[items], NEIGHBORS)], 1)
        near = self.near[nodes.unsqueeze(2), nodes.unsqueeze(1)]
        return SimpleNamespace(x=self.graph.x[nodes].float(), attn_bias=near, centroids=None)

    def train(self) -> None:
        """Train one epoch."""
        self.model.train()
        items = self.graph.train.nonzero().squeeze(1)
        for part in torch.split(items[torch.randperm(len(items))], BATCH):
            self.optimizer.zero_grad()
            functional.nll_loss(self.model(self.batch(part)), self.graph.y[part]).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.model.vq.update(self.model.node_feature.flatten(0, 1))

    @torch.no_grad()
    def accuracy(self, mask: Tensor) -> float:
        """Return the share of the nodes of ``mask`` [n] that are classified correctly, in percent."""
        self.model.eval()
        items = mask.nonzero().squeeze(1)
        right = [self.model(self.batch(part)).argmax(1) == self.graph.y[part] for part in torch.split(items, 2 * BATCH)]
        return 100 * float(torch.cat(right).float().mean().item())

    def load(self, weights: dict[str, Tensor]) -> None:
        """Take up ``weights``."""
        own = self.model.state_dict()
        kept = {name: own[name] if any(part in name for part in STAYS) else value for name, value in weights.items()}
        self.model.load_state_dict(kept)


def average(clients: list[Client], align: Callable[[Tensor, Tensor], tuple[float, Any]]) -> float:
    """Give every client its average; return the mean weight of a client's own model."""
    books = [client.model.vq.get_k().detach() for client in clients]
    similarity = torch.tensor([[align(one, other)[0] for other in books] for one in books], dtype=torch.float64)
    weights = torch.softmax(TAU * similarity, 1)
    states = [{name: value.clone() for name, value in client.model.state_dict().items()} for client in clients]
    stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    for mine, client in zip(weights, clients, strict=True):
        client.load({name: torch.tensordot(mine, all_.double(), 1).to(all_.dtype) for name, all_ in stacked.items()})
    return float(weights.diagonal().mean().item())


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.fedgt.authors", description=__doc__)
    parser.add_argument("clone", type=Path, help="a copy of zaixizhang/FedGT")
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="rounds from one test to the next")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate")
    parser.add_argument("--dropout", type=float, default=0.5, help="of inputs and summands")
    parser.add_argument("--attention-dropout", type=float, default=0.5)
    parser.add_argument("--alone", action="store_true", help="every client trains alone, nothing is averaged")
    parser.add_argument("--glorot", action="store_true", help="Glorot's initial weights")
    parser.add_argument("--root", help="folder of the raw data sets")
    options = parser.parse_args()
    sys.path.insert(0, str(options.clone))
    nets, utils = import_module("models.nets"), import_module("misc.utils")
    row = Published(
        "fedgt-table1", options.dataset, "non-overlapping", str(options.clients), fedgt_methods.AS_PUBLISHED_CODE,
        "accuracy", "percent", None, None,
    )  # fmt: skip
    spec, partition = fedgt.split_of(row, options.root)
    graph = partition.apply(spec.load(), spec, derive(options.seed, "partition"))
    torch.manual_seed(options.seed)  # their modules draw from the global state

    def network() -> Any:
        model = nets.GT(
            n_layers=2, num_heads=4, input_dim=graph.num_features, hidden_dim=128, output_dim=graph.num_classes,
            attn_bias_dim=POWERS, dropout_rate=options.dropout, intput_dropout_rate=options.dropout, ffn_dim=128,
            num_global_node=2, attention_dropout_rate=options.attention_dropout, num_centroids=10,
        )  # fmt: skip
        for module in model.modules():
            if options.glorot and isinstance(module, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(module.weight)
        return model

    clients = [Client.of(graph.client(k), network(), options.rate) for k in range(graph.num_clients)]
    first = {name: value.clone() for name, value in network().state_dict().items()}
    for client in clients:
        client.load(first)
    best, start = (-1.0, 0.0, 0), time.process_time()
    for round in range(1, options.rounds + 1):
        for client in clients:
            client.train()
        tested = round % options.every == 0 or round == options.rounds
        if tested:
            val, test = (
                sum(client.accuracy(getattr(client.graph, name)) for client in clients) / len(clients)
                for name in ("val", "test")
            )
            best = max(best, (val, test, round), key=lambda found: found[0])  # the first of equals
        own = 1.0 if options.alone else average(clients, utils.alignment_distance)
        if tested:
            print(f"round {round}: test {test:.1f}, validation {val:.1f}, own weight {own:.2f}", flush=True)
    print(f"best on validation nodes: {best[1]:.1f} in round {best[2]}, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
