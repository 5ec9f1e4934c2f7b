"""Homomorphic encryption of FedGCN's sums: bytes, CPU time and memory, exactness, and a whole training on real Cora.

``bytes``: one million boolean neighbour sums. ``sums``: everything before training on Cora with 10 clients (dirichlet,
beta 10000): bytes up and down with and without encryption and padding, CPU seconds of all clients and the server
together (one thread; making the sums, encrypting, adding, decrypting) and the peak memory of a process that does
nothing else. ``different`` counts the delivered numbers that differ from the sum of what the clients rounded.
``training``: accuracy after the paper's 300 rounds, the same seed with and without encryption.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.none import NoDefense
from fglaudit.federated.neighbor_sums import sender_sums
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.problem import gather_features
from fglaudit.graph import FederatedGraph
from fglaudit.he.bfv import Bfv
from fglaudit.he.fixed_point import FixedPoint
from fglaudit.he.layout import Layout
from fglaudit.he.packed_rows import seal_rows
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

CLIENTS = 10
DEFENSES: dict[str, Defense] = {
    "none": NoDefense(),
    "encrypted": HomomorphicEncryption(on=("NeighborSums",)),
    "padded": HomomorphicEncryption(on=("NeighborSums",), padded=True),
}
KEY = ("what", "hops", "aggregate", "defense", "seed")
VALUES = ("mb_up", "mb_down", "ciphertexts", "cpu_seconds", "peak_rss_gb", "different", "accuracy", "accuracy_global")


class Case(NamedTuple):
    what: str
    hops: int
    aggregate: str
    defense: str
    seed: int

    @property
    def weights(self) -> Weights:
        return "counts" if self.aggregate == "counts" else "normalised"


def cases(seeds: int) -> Iterator[Case]:
    """Yield all measurements; the trainings last."""
    for bound in (15, 255):
        yield Case("bytes", 1, f"counts up to {bound}", "encrypted", 0)
    for hops in (1, 2):
        for aggregate in ("counts", "normalised"):
            for defense in DEFENSES:
                if hops == 1 or defense != "padded":
                    yield Case("sums", hops, aggregate, defense, 0)
    for seed in range(seeds):
        for hops in (1, 2):
            for defense in ("none", "encrypted"):
                yield Case("training", hops, "normalised", defense, seed)


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing in ``results/encryption.csv``, then print the table."""
    table = Table(results / "encryption.csv", KEY, VALUES)
    for case in cases(seeds):
        if table.has(case._asdict()):
            continue
        # A process of its own, so that its peak memory is this case's; `spawn`, because a forked torch may hang.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(measure, (case, root, torch.get_num_threads()))
        table.add({**case._asdict(), **row})
        print(*table.rows()[-1].values(), flush=True)
    show(table)


def measure(case: Case, root: str | None, threads: int) -> dict[str, Any]:
    """Measure one case in this process."""
    torch.set_num_threads(threads)
    row: dict[str, Any] = dict.fromkeys(VALUES, "")
    if case.what == "bytes":
        row |= million(int(case.aggregate.rsplit(" ", 1)[1]))
    else:
        spec = DatasetSpec("cora", root=root)
        graph = PartitionSpec("dirichlet", CLIENTS, 10000.0).apply(spec.load(), spec, derive(case.seed, "partition"))
        row |= sums(case, graph) if case.what == "sums" else training(case, graph)
    return row | {"peak_rss_gb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f}"}


def million(bound: int) -> dict[str, Any]:
    """Seal a million boolean sums of at most ``bound`` terms, 698 rows of 1433 features, as one client sends them."""
    rows, columns = 698, 1433
    start = time.process_time()
    code = FixedPoint.of_counts(torch.full((rows,), float(bound)), signed=False)
    codec = Bfv(4096, code)
    at = torch.arange(rows)
    layout = Layout.of(at, torch.zeros_like(at), code.width, columns, codec.parameters.slots)
    values = torch.randint(bound + 1, (rows, columns), generator=derive(0, "million")).float()
    splits = torch.tensor([0, rows])
    packed = seal_rows(codec, layout, torch.ones_like(at), at, values, splits, padded=False)
    found = packed.opened()
    return {
        "mb_up": f"{int(packed.wire_bytes(splits)) / 1e6:.3f}",
        "mb_down": f"{layout.blocks * codec.parameters.full_bytes / 1e6:.3f}",
        "ciphertexts": layout.blocks,
        "different": int((found != values).sum()),
        "cpu_seconds": f"{time.process_time() - start:.2f}",
    }


def sums(case: Case, graph: FederatedGraph) -> dict[str, Any]:
    """Do everything before the first round, and compare what is delivered with the sum of what was rounded."""
    protocol, defense = FedGCN(hops=case.hops, aggregate=case.weights, rounds=1), DEFENSES[case.defense]
    context = protocol.context(graph)
    start = time.process_time()
    session = defense.bind(context)
    channel = RecordingChannel(session, CLIENTS, derive(0, "defense"))
    problem, inputs = protocol.pretrain(graph, channel, torch.device("cpu"))
    seconds = time.process_time() - start
    row = {
        "mb_up": f"{float(channel.bytes_up.sum()) / 1e6:.2f}",
        "mb_down": f"{float(channel.bytes_down.sum()) / 1e6:.2f}",
        "cpu_seconds": f"{seconds:.2f}",
    }
    if case.defense == "none":
        return row
    needed = problem.rows.node[problem.needed(protocol.layers)]
    expected = reference(case, graph, session)[needed].float()
    if case.aggregate == "counts":
        expected = expected / (graph.degrees()[needed] + 1).unsqueeze(1)
    sealer = session.sealers[NeighborSums]  # type: ignore[attr-defined]
    return row | {"ciphertexts": sealer.layout.blocks, "different": int((inputs != expected).sum())}


def reference(case: Case, graph: FederatedGraph, session: DefenseSession) -> torch.Tensor:
    """Return the totals [N, F] of what every client's sums are rounded to, added up as whole numbers in the clear."""
    code = session.sealers[NeighborSums].codec.fixed_point  # type: ignore[attr-defined]
    clients = [graph.client(k) for k in range(CLIENTS)]
    edges, x = KeptEdges.of(clients, graph.degrees()), gather_features(clients, graph.num_nodes)
    total = torch.zeros(graph.num_nodes, graph.num_features, dtype=torch.long)
    for part in sender_sums(edges, x, CLIENTS, counts=case.aggregate == "counts"):
        total.index_add_(0, part.nodes, code.quantise(part.sums, part.nodes))
    restored: torch.Tensor = code.restore(total, torch.arange(graph.num_nodes))
    return restored


def training(case: Case, graph: FederatedGraph) -> dict[str, Any]:
    """Train with the paper's settings, with the random streams that an audit cell of this seed uses."""
    protocol = FedGCN(hops=case.hops, aggregate=case.weights)
    start = time.process_time()
    session = DEFENSES[case.defense].bind(protocol.context(graph))
    channel = RecordingChannel(session, CLIENTS, derive(case.seed, "defense"))
    trained = protocol.train(graph, channel, rng=derive(case.seed, "train"), device=torch.device("cpu"))
    return {
        "mb_up": f"{float(channel.bytes_up.sum()) / 1e6:.2f}",
        "mb_down": f"{float(channel.bytes_down.sum()) / 1e6:.2f}",
        "cpu_seconds": f"{time.process_time() - start:.1f}",
        "accuracy": f"{trained.client_mean:.6f}",
        "accuracy_global": f"{trained.whole_test_set:.6f}",
    }


def show(table: Table) -> None:
    """Print all measurements, and the difference that encryption makes to the accuracy of a seed."""
    rows = table.rows()
    print(
        f"\n{'what':9} {'hops':>4} {'sums':16} {'defense':10} {'MB up':>8} {'MB down':>8} {'CPU s':>6} {'GB':>5}"
        f" {'different':>9}"
    )
    for row in rows:
        if row["what"] != "training":
            print(
                f"{row['what']:9} {row['hops']:>4} {row['aggregate']:16} {row['defense']:10} {row['mb_up']:>8}"
                f" {row['mb_down']:>8} {row['cpu_seconds']:>6} {row['peak_rss_gb']:>5} {row['different']:>9}"
            )
    for hops in ("1", "2"):
        found = {
            name: {
                r["seed"]: 100 * float(r["accuracy"])
                for r in rows
                if (r["what"], r["hops"], r["defense"]) == ("training", hops, name)
            }
            for name in ("none", "encrypted")
        }
        paired = sorted(found["none"].keys() & found["encrypted"].keys())
        if paired:
            gaps = [found["encrypted"][seed] - found["none"][seed] for seed in paired]
            means = [statistics.fmean(found[name][seed] for seed in paired) for name in found]
            print(
                f"accuracy, {hops} hop(s), {len(paired)} seeds: {means[0]:.2f} without, {means[1]:.2f} with encryption;"
                f" differences {', '.join(f'{gap:+.2f}' for gap in gaps)}"
            )
