"""Attacks on FedGAT's masked messages of all nodes of a data set: every client in turn, targets are the neighbours at
other clients.

Messages are made by the protocol's own code and pass through their wire bytes, one batch at a time, so that memory
stays bounded; embeddings come from a training on the fast path. Counted are rows rebuilt exactly, under the best
assignment and at the right node.
"""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fglaudit.attacks.neighborhoods.embedding_inversion import EmbeddingInversion
from fglaudit.attacks.neighborhoods.gram_peeling import GramPeeling
from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.attacks.neighborhoods.power_moments import PowerMoments
from fglaudit.attacks.neighborhoods.second_moments import SecondMoments
from fglaudit.attacks.neighborhoods.vector_columns import VectorColumns
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.nn.gat import unit_ball
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import SERVER, Embeddings, MessageBatch, ModelUpdate, Payload
from fglaudit.protocols.fedgat.fedgat import FedGAT, Variant
from fglaudit.protocols.fedgat.masking import degree_batches, mask_parts
from fglaudit.quantities.rows.game import Game, score
from fglaudit.recording import Kept, record_training
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.view import Messages, Observer
from fglaudit.wire.channel import Keep
from fglaudit.wire.transcript import deserialise, serialise

KEY = ("dataset", "attack", "variant", "embeddings", "clients", "threads")
VALUES = (
    "targets",
    "exact_matched",
    "exact_at_node",
    "proven",
    "median_cosine",
    "median_cosine_of_nearest",
    "wire_gb",
    "seconds",
    "cpu_seconds",
    "peak_rss_gb",
)
RUNS: tuple[tuple[Attack, Variant, bool], ...] = (
    (JointDiagonalisation(), "matrix", True),
    (JointDiagonalisation(), "matrix", False),
    (GramPeeling(), "matrix", True),
    (SecondMoments(), "matrix", True),
    (PowerMoments(), "matrix", True),
    (VectorColumns(), "vector", True),
    (EmbeddingInversion(), "vector", True),
)


@dataclass
class Stream:
    """The messages of one client's own nodes, made when read, and what was recorded of training; ``sent`` counts their
    bytes."""

    protocol: FedGAT
    edges: KeptEdges
    x: Tensor
    client: int
    nodes: Tensor
    recorded: Messages
    sent: int = 0

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the messages with this payload."""
        masked = self.protocol.masked
        if payload is not masked:
            yield from self.recorded.of(payload)
            return
        rng = derive(0, "masks", self.client)
        owner = torch.full_like(self.nodes, self.client)
        for size, receivers, nodes in degree_batches(self.edges, owner, self.nodes, self.x.shape[1], masked):
            (body,) = mask_parts(self.edges, self.x, nodes, [torch.arange(len(nodes))], size, masked, rng)
            blob = serialise(MessageBatch(0, torch.full_like(receivers, SERVER), receivers, body))
            del body
            self.sent += len(blob)
            batch = deserialise(blob, 0, masked.__name__)
            del blob
            yield batch


def run(results: Path, root: str | None, dataset: str = "cora", clients: int = 10) -> None:
    """Measure every attack once; rows go to ``results/fedgat_attacks.csv``."""
    table = Table(results / "fedgat_attacks.csv", KEY, VALUES)
    spec = DatasetSpec(dataset, root=root)
    graph = PartitionSpec("dirichlet", clients, 10000.0).apply(spec.load(), spec, derive(0, "partition"))
    for attack, variant, embeddings in RUNS:
        key: dict[str, object] = {
            "dataset": dataset,
            "attack": attack.name,
            "variant": variant,
            "embeddings": embeddings,
        }
        key |= {"clients": clients, "threads": torch.get_num_threads()}
        if not table.has(key):
            table.add({**key, **measure(graph, attack, variant, embeddings)})
    for row in table.rows():
        print(*(f"{name}={value}" for name, value in row.items()))


def measure(graph: FederatedGraph, attack: Attack, variant: Variant, embeddings: bool) -> dict[str, str]:
    """Return the figures of one attack, every client in turn, pooled.

    Args:
        embeddings: whether the attack also has those that training sends, as long as it reads them (24 rounds if it
            reads all).
    """
    started, worked = time.perf_counter(), time.process_time()
    protocol = FedGAT(variant=variant, remote="embeddings", rounds=(type(attack).first_rounds or 25) - 1)
    # Kept are embeddings and models alone: the protocol then trains by moments and never makes the masked messages.
    keep = Keep({Embeddings: None, ModelUpdate: None} if embeddings else {})
    recording, facts = record_training(graph, protocol, NoDefense(), keep=Kept(messages=keep))
    observers = [Observer((k,)) for k in range(graph.num_clients)]
    views = [recording.view(observer) for observer in observers]
    edges, x = KeptEdges.of([view.own[0] for view in views], graph.degrees()), unit_ball(graph.x)
    games, rebuilt, sent, nearest = [], [], 0, []
    for k, (view, asked) in enumerate(zip(views, facts.about(observers, True), strict=True)):
        messages = Stream(protocol, edges, x, k, view.own[0].nodes, view.messages)
        streamed = dataclasses.replace(view, messages=messages)
        result = attack.run(streamed, rng=derive(0, "attack", k), device=torch.device("cpu"))
        assert isinstance(result, Reconstruction)
        game = Game.of(asked)
        truth, guess = (torch.nn.functional.normalize(rows.float(), dim=1) for rows in (game.truth, result.rows))
        nearest.append((truth @ guess.T).amax(1))
        games.append(game)
        rebuilt.append(result)
        sent += messages.sent
    seconds, work = time.perf_counter() - started, time.process_time() - worked
    found = score(games, rebuilt)
    return {
        "targets": str(len(found.rows.exact_rate)),
        "exact_matched": f"{found.matched_rate:.5f}",
        "exact_at_node": f"{float(found.rows.exact_rate.mean()):.5f}",
        "proven": "" if found.proven is None else f"{float(found.proven.float().mean()):.5f}",
        "median_cosine": f"{float(found.rows.cosine.median()):.6f}",
        "median_cosine_of_nearest": f"{float(torch.cat(nearest).median()):.6f}",
        "wire_gb": f"{sent / 1e9:.2f}",
        "seconds": f"{seconds:.1f}",
        "cpu_seconds": f"{work:.1f}",
        "peak_rss_gb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f}",
    }
