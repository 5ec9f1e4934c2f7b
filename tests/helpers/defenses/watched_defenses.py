"""Every built-in defense on a protocol that it serves, trained with hooks whose inputs and outputs are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from node_graphs import graph as task_graph
from torch import Tensor
from user_graphs import GCN, user_graph

from fglaudit import registry
from fglaudit.facts import (
    Unstated,
)
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph
from fglaudit.wire.channel import RecordingChannel

SUMS = FedGCN(hops=1, rounds=2)
TRANSFORMER = FedGT(rounds=8, hidden=8, heads=2, feed_forward=8, global_nodes=3)
APPNP = GFLAPPNP(hidden=8, rounds=8, local_steps=2)
MATRICES, VECTORS = (FedGAT(variant=variant, rounds=2, heads=2) for variant in ("matrix", "vector"))
REPORTS = PrivateReports(rounds=2)
USERS, SHARED = NFedGNN(**GCN), CNFGNN(**GCN)
CASES: list[tuple[str, dict[str, Any], FederatedProtocol]] = [
    ("none", {}, SUMS),
    ("drop-singletons", {}, SUMS),
    ("minimum-neighborhood", {"fewest": 3}, SUMS),
    ("merge-neighbors", {"size": 2}, MATRICES),
    ("merge-neighbors", {"size": 2}, VECTORS),
    ("fewer-features", {"share": 0.5}, MATRICES),
    ("fewer-features", {"share": 0.5}, SUMS),
    ("clipping", {"clip": [0.5, 0.2]}, APPNP),
    ("clipping", {"clip": [0.01, 0.2], "on": ["Latents", "ModelUpdate"]}, SHARED),
    ("quantisation", {"bits": 3}, APPNP),
    ("quantisation", {"bits": 2, "on": ["GlobalNodes"]}, TRANSFORMER),
    ("gaussian", {"epsilon": 4.0}, SUMS),
    ("gaussian", {"epsilon": 4.0, "clip": 1.5, "on": "RawFeatures"}, MATRICES),
    ("gaussian", {"epsilon": 4.0, "on": "MaskedMatrices"}, MATRICES),
    ("gaussian", {"epsilon": 4.0, "on": "MaskedVectors"}, VECTORS),
    ("clipped-noise", {"epsilon": 4.0, "clip": 0.3}, USERS),
    ("clipped-noise", {"epsilon": 500.0, "clip": 0.3, "mechanism": "laplace"}, SHARED),
    ("joint-noise", {"epsilon": 20.0, "clip": [0.5, 2.0, 0.1]}, APPNP),
    ("joint-noise", {"epsilon": 20.0, "clip": [0.1, 0.1], "on": ["Latents", "ModelUpdate"]}, SHARED),
    ("clipped-laplace", {"on": ["GlobalNodes", "ModelUpdate"]}, TRANSFORMER),
    ("clipped-laplace", {"on": ["GlobalNodes"], "norm": "l1"}, TRANSFORMER),
    ("local-features", {"clip": 1.5}, SUMS),
    ("local-features", {"mechanism": "gaussian", "delta": 1e-5, "clip": 1.5}, TRANSFORMER),
    ("multi-bit", {"epsilon": 20.0}, SUMS),
    ("multi-bit", {"epsilon": 20.0, "rectified": True, "sampled": 5}, SUMS),
    ("dp-sgd", {"degree_bound": 2, "edges": "public", "clip": 0.05}, SUMS),
    ("dp-sgd", {"degree_bound": 2, "clip": 0.05, "sampling_rate": 0.5}, FedGCN(hops=0, rounds=2)),
    ("dp-fedavg", {"clip": 0.01}, SUMS),
    ("dp-fedavg", {"clip": 0.01, "trust": "local"}, SUMS),
    ("dp-fedavg", {"clip": 0.01, "trust": "distributed"}, SUMS),
    ("k-ary-response", {"epsilon": 2.0}, REPORTS),
    ("homomorphic-encryption", {}, SUMS),
    ("homomorphic-encryption", {"bits": 18, "on": ["NeighborSums"]}, SUMS),
    ("homomorphic-encryption", {"scheme": "ckks", "on": ["NeighborSums"]}, SUMS),
    ("threshold-encryption", {}, SUMS),
    ("secure-aggregation", {}, SUMS),
    ("secure-aggregation", {"dropouts": 0.4, "threshold": 0.51, "on": ["NeighborSums"]}, SUMS),
]
STACKED = {"stack"}
"""Has facts of its parts alone; see ``test_stack.py``."""


def graph_for(protocol: FederatedProtocol) -> FederatedGraph:
    if protocol in (USERS, SHARED):
        return user_graph(nodes=60)
    return task_graph() if protocol is APPNP else example_graph()


Before = tuple[MessageBatch, Payload]


@dataclass
class Seen:
    """What entered the hooks of a session in one training, and what left."""

    session: DefenseSession
    graph: FederatedGraph
    clients: list[tuple[ClientGraph, ClientGraph]] = field(default_factory=list)
    gradients: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    messages: list[Before] = field(default_factory=list)
    merged: list[Tensor] = field(default_factory=list)
    unstated: Sequence[Unstated] = ()

    def of(self, kind: str, direction: str) -> list[Before]:
        return [(b, p) for b, p in self.messages if type(b.payload).__name__ == kind and way(b) == direction]


def way(batch: MessageBatch) -> str:
    return "down" if bool((batch.senders == SERVER).all()) else "up"


def train(name: str, arguments: dict[str, Any], protocol: FederatedProtocol) -> Seen:
    """Train with a defense whose hooks are watched."""
    graph = graph_for(protocol)
    session: Any = registry.build("defense", name, arguments).bind(protocol.context(graph))
    seen = Seen(session, graph)
    prepare, release, merge, update = session.prepare, session.release, session.merge, session.local_update

    def watched_prepare(client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        seen.clients.append((client, prepare(client, rng)))
        return seen.clients[-1][1]

    def watched_release(batch: MessageBatch, rng: torch.Generator) -> Payload:
        entered = type(batch.payload).from_tensors({k: v.clone() for k, v in batch.payload.tensors().items()})
        released: Payload = release(batch, rng)
        if not any(value.is_meta for value in entered.tensors().values()):  # counted, and never made
            seen.messages.append((dataclasses.replace(batch, payload=entered), released))
        return released

    def watched_merge(center: Tensor, neighbor: Tensor) -> Tensor:
        seen.merged.append(merge(center, neighbor))
        return seen.merged[-1]

    def watched_update(gradients: Tensor, rng: torch.Generator) -> Tensor:
        seen.gradients.append((gradients.clone(), update(gradients, rng)))
        return seen.gradients[-1][1]

    session.prepare, session.release, session.merge = watched_prepare, watched_release, watched_merge
    session.local_update = watched_update
    channel = RecordingChannel(session, graph.num_clients, derive(0, "defense"))
    # Watched calls are those of the run.
    with mock.patch("fglaudit.wire.observing.call_replay.is_foreign", return_value=False):
        protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)
    seen.unstated = channel.unstated
    return seen


def context_of(case: int) -> Any:
    protocol = CASES[case][2]
    return protocol.context(graph_for(protocol))
