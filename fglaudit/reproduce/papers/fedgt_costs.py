"""FedGT's Tables 5 and 10: bytes and time of a round beside FedAvg's, and preprocessing per client.

A round's cost is the difference of two trainings of different length, so that what is done once does not count. Which
network the paper's FedAvg has in Table 5 is not stated; ours is the GraphSAGE of its other tables. Seconds are CPU
seconds of this process; the paper's are read from a clock on its server.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from fglaudit.graph import FederatedGraph
from fglaudit.nn.laplacian import laplacian_encoding
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedgt.neighbor_sampling import find_candidates
from fglaudit.reproduce.papers import fedgt, fedgt_methods
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import Measured, trained
from fglaudit.rng import derive

METRICS = ("communication-cost", "computation-cost", "preprocessing-time")
_ROUNDS = (2, 7)


def figure(row: Published, seed: int, root: str | None) -> Measured | str:
    """Return our figure for ``row``: percent of FedAvg's, or seconds per client."""
    if row.dataset not in fedgt_methods.SETTINGS:
        return fedgt.TOO_LARGE
    if row.metric == "preprocessing-time":
        dataset, partition = fedgt.split_of(row, root)
        taken = preprocessing(partition.apply(dataset.load(), dataset, derive(seed, "partition")))
        return Measured(taken, taken)
    ours, theirs = (per_round(replace(row, method=method), seed, root) for method in (row.method, "FedAvg"))
    seconds = ours.seconds
    if row.metric == "computation-cost":
        return replace(ours, value=100 * seconds / theirs.seconds)
    sent, base = (cost.gigabytes_up + cost.gigabytes_down for cost in (ours, theirs))
    return replace(ours, value=100 * sent / base)


def per_round(row: Published, seed: int, root: str | None) -> Measured:
    """Return CPU seconds and bytes of one round of the row's method; ``value`` is left at 0."""
    costs = []
    for rounds in _ROUNDS:
        costs.append(trained(fedgt.training(row, root, rounds=rounds), seed)[1])
    few, many = costs
    length = _ROUNDS[1] - _ROUNDS[0]
    return Measured(
        0.0,
        (many.seconds - few.seconds) / length,
        (many.gigabytes_up - few.gigabytes_up) / length,
        (many.gigabytes_down - few.gigabytes_down) / length,
    )


def preprocessing(graph: FederatedGraph) -> float:
    """Return the mean CPU seconds per client of personalised PageRank and positional encoding, FedGT's defaults."""
    settings = FedGT()
    clients = [graph.client(k) for k in range(graph.num_clients)]
    torch.linalg.inv(torch.eye(64))  # the first call loads the library
    start = time.process_time()
    for client in clients:
        laplacian_encoding(client.edge_index, len(client.nodes), settings.encoding)
    find_candidates(clients, settings.sampling, settings.candidates, settings.restart, derive(0))
    return (time.process_time() - start) / len(clients)
