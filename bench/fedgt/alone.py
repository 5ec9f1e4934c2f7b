"""``python -m bench.fedgt.alone``: what a client of FedGT's Tables 1 and 2 reaches alone without learning anything.

Two rules beside the printed figure of "Local": every test node has the most frequent class of the client's own training
nodes, or the class that the labels of these nodes give when they are propagated over the client's own subgraph
(``Z <- 0.9 D^-1 A Z + 0.1 Y``, 30 steps; features are not read). Partitions and splits are those of the tables,
accuracies in percent, mean over clients; mean and range over the seeds.

``--train``, with or without fields such as ``learning_rate=0.01`` or ``source=code``, trains "Local" itself on Cora
(:class:`fglaudit.protocols.baselines.local_gt.LocalGT`) and prints the accuracy in the round with the best validation
accuracy among those tested, in the last round, and of the last models on the test nodes of all clients.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.federated.subgraph_training import SubgraphModels
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.protocols.baselines.local_gt import LocalGT
from fglaudit.protocols.fedgt.sources import AS_PUBLISHED
from fglaudit.reproduce.papers import fedgt, fedgt_methods
from fglaudit.reproduce.published import all_published
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

STEPS, KEPT = 30, 0.1
"""Of the propagation, and the share of a training node's own label."""


def guesses(client: ClientGraph, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the most frequent class (a scalar) and the propagated labels [n] of one client."""
    labels = functional.one_hot(client.y.clamp(min=0), num_classes).float() * client.train.unsqueeze(1)
    counts = labels.sum(0)
    row, column = client.edge_index
    share = torch.bincount(row, minlength=len(client.nodes)).clamp(min=1).float().reciprocal()[row]
    spread = labels
    for _ in range(STEPS):
        sums = torch.zeros_like(labels).index_add_(0, row, share.unsqueeze(1) * spread[column])
        spread = (1 - KEPT) * sums + KEPT * labels
    return counts.argmax(), (spread + 1e-6 * counts).argmax(1)  # a node that no label reaches has the frequent class


def local(changes: Sequence[str]) -> LocalGT:
    """Return "Local" with ``NAME=VALUE`` set; ``source=code`` brings the code's settings but for the rounds."""
    fields: dict[str, Any] = dict(change.split("=") for change in changes)
    if fields.get("source") == "code":
        fields = {name: value for name, value in AS_PUBLISHED.items() if name not in ("similarity", "rounds")} | fields
    plain = LocalGT()
    return LocalGT(**{name: type(getattr(plain, name))(value) for name, value in fields.items()})


def train(protocol: LocalGT, graph: FederatedGraph, seed: int, every: int) -> tuple[float, float, float]:
    """Return the three accuracies of ``--train``, in percent; tested is every ``every``-th round."""
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(seed, "defense"))
    models, first, nodes = protocol.prepare(graph, channel, derive(seed, "train"), torch.device("cpu"))
    models.load(first.expand(graph.num_clients, -1), nodes.expand(graph.num_clients, -1, -1))
    best = last = (-1.0, 0.0)
    for round in range(1, protocol.rounds + 1):
        models.train_round()
        if round % every == 0 or round == protocol.rounds:
            right = models.correct()
            val, test = (mean_share(right, mask) for mask in (models.inputs.val, models.inputs.test))
            last = (val, test)
            best = max(best, last, key=lambda found: found[0])  # the first of equals
    return best[1], last[1], on_all(models)


def mean_share(right: Tensor, mask: Tensor) -> float:
    """Return the mean over clients, in percent, of the share of ``mask`` [K, n] that is ``right`` [K, n]."""
    return 100 * float(((right & mask).sum(1) / mask.sum(1).clamp(min=1)).mean().item())


def on_all(models: SubgraphModels) -> float:
    """Return the mean accuracy of the clients' models on the test nodes of all clients, in percent."""
    vectors, nodes, test = models.vectors.clone(), models.global_nodes.clone(), models.inputs.test
    shares = []
    for vector, own in zip(vectors, nodes, strict=True):
        models.load(vector.expand_as(vectors), own.expand_as(nodes))
        shares.append((models.correct() & test).sum() / test.sum())
    return 100 * float(torch.stack(shares).mean().item())


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.fedgt.alone", description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer"], choices=list(fedgt_methods.SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--root", help="folder of the raw data sets")
    parser.add_argument("--train", nargs="*", metavar="NAME=VALUE", help="train Local on Cora with these fields")
    parser.add_argument("--clients", type=int, default=20, help="of --train")
    parser.add_argument("--every", type=int, default=4, help="rounds from one test to the next, of --train")
    options = parser.parse_args()
    if options.train is not None:
        seed = fedgt.SEEDS[0]
        graph = fedgt.federated("cora", "non-overlapping", options.clients, seed, options.root)
        best, last, everywhere = train(local(options.train), graph, seed, options.every)
        print(f"{best:.1f}, last round {last:.1f}, on the test nodes of all clients {everywhere:.1f}")
        return
    for printed in all_published():
        if printed.method != "Local" or printed.dataset not in options.datasets:
            continue
        if printed.table not in ("fedgt-table1", "fedgt-table2"):
            continue
        found: list[tuple[float, float]] = []
        for seed in range(fedgt.SEEDS[0], fedgt.SEEDS[0] + options.seeds):
            graph = fedgt.federated(printed.dataset, printed.setting, int(printed.clients), seed, options.root)
            clients = [graph.client(k) for k in range(graph.num_clients)]
            right = []
            for client in clients:
                frequent, spread = guesses(client, graph.num_classes)
                mine = client.y[client.test]
                right.append([(mine == frequent).float().mean(), (mine == spread[client.test]).float().mean()])
            frequent_rate, spread_rate = (100 * torch.tensor(right).mean(0)).tolist()
            found.append((frequent_rate, spread_rate))
        columns = [
            f"{name} {statistics.fmean(values):.1f} ({min(values):.1f} to {max(values):.1f})"
            for name, values in zip(("frequent class", "own labels propagated"), zip(*found, strict=True), strict=True)
        ]
        print(f"{printed.label}: printed {printed.mean:g}; {'; '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
