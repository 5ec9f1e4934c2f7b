"""``python -m bench.speed.growth``: how training and attacks grow with nodes, edges, features, clients and rounds.

A drawn graph is made two and four times as large in one respect at a time; CPU seconds of every protocol's training,
and of every attack on a recording of it, are fitted by a power of the size: 1 is linear, 0 does not grow. More nodes
bring edges in proportion, all else stays. Training records nothing; attacks run for the server and for client 0,
without self-tests. An attack that gives up on larger problems has a negative power. Below :data:`LEAST` seconds
start-up is all that could be measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fglaudit import registry
from fglaudit.attacking import run_attacks
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.datasets.csbm_tasks import CsbmTask
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, DefenseSession, FederatedProtocol
from fglaudit.observers import ObserverSpec, expand
from fglaudit.partition import PartitionSpec
from fglaudit.partition.schemes import Scheme
from fglaudit.recording import Kept, record_training
from fglaudit.rng import derive
from fglaudit.suite.suite import fitting
from fglaudit.wire.channel import Keep, RecordingChannel

FACTORS = (1, 2, 4)
LEAST = 0.02
OBSERVERS = (ObserverSpec(("server",)), ObserverSpec(("client:0",)))


@dataclass(frozen=True)
class Size:
    """Of a graph and its training; ``clients`` is None where every node is one."""

    nodes: int = 2000
    edges: int = 4000
    features: int = 400
    clients: int | None = 5
    rounds: int = 20

    def grown(self, what: str, factor: int) -> Size:
        """Return the size with ``what`` ``factor`` times as large."""
        both = ("nodes", "edges") if what == "nodes" else (what,)
        return dataclasses.replace(self, **{name: factor * getattr(self, name) for name in both})

    def respects(self) -> list[str]:
        """Return what can grow."""
        return [f.name for f in dataclasses.fields(self) if getattr(self, f.name) is not None]


@dataclass(frozen=True)
class Case:
    """A protocol, and what it trains on; ``task`` is the name of a drawn data set where it needs one of its own."""

    protocol: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    size: Size = Size()
    scheme: Scheme = "dirichlet"
    task: str = ""

    def graph(self, size: Size) -> FederatedGraph:
        if self.task:
            degree = 2 * size.edges / size.nodes
            spec = DatasetSpec(self.task, task=CsbmTask(size.nodes, degree, dimensions=size.features))
        else:
            drawn = CsbmOptions(size.nodes, size.edges, 4, size.features, ones_per_row=8, degree_exponent=0.4)
            spec = DatasetSpec("csbm", csbm=drawn, split="random", train=0.2, val=0.3, test=0.5)
        partition = PartitionSpec(self.scheme, size.clients or 1, 10000.0 if self.scheme == "dirichlet" else None)
        return partition.apply(spec.load(), spec, derive(0, "partition"))

    def build(self, size: Size) -> FederatedProtocol:
        protocol: FederatedProtocol = registry.build(
            "protocol", self.protocol, {**self.arguments, "rounds": size.rounds}
        )
        return protocol


USERS = Size(100, 150, 100, None, 20)
CASES = (
    Case("fedgcn", {"hops": 1}),
    Case("fedgcn", {"hops": 2}),
    Case("fedgat", {"heads": 2}, Size(200, 400, 100, 5, 5)),
    Case("nfedgnn", {}, USERS, "per-node"),
    Case("gfl-appnp", {"hidden": 16}, Size(100, 300, 30, None, 20), "per-node", "csbm-dnc"),
    Case("fedgt", {"hidden": 32, "feed_forward": 32}, Size(400, 800, 100, 4, 4), "louvain"),
)


def measure(case: Case, size: Size) -> dict[str, float]:
    """Return the CPU seconds of training and of every attack that runs."""
    graph, protocol, device = case.graph(size), case.build(size), torch.device("cpu")
    found = {"training": _training(protocol, graph)}
    attacks = fitting(protocol, [registry.build("attack", name, {}) for name in registry.names("attack")])
    seen = [member for spec in OBSERVERS for member in expand(spec, graph.num_clients)[0]]
    recording, _ = record_training(
        graph, protocol, NoDefense(), keep=Kept(messages=Keep.for_attacks(seen, attacks, size.rounds))
    )
    for spec in OBSERVERS:
        for attack in attacks:
            start = time.process_time()
            (output,) = run_attacks(recording, [spec], [attack], device=device, self_tests=False)
            if output.blank.status is not Status.NOT_APPLICABLE:
                found[_row(spec, attack)] = time.process_time() - start
    return found


def _training(protocol: FederatedProtocol, graph: FederatedGraph) -> float:
    """Return the CPU seconds of training with nothing recorded."""
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"))
    start = time.process_time()
    protocol.train(graph, channel, rng=derive(0, "train"), device=torch.device("cpu"))
    return time.process_time() - start


def _row(spec: ObserverSpec, attack: Attack) -> str:
    return f"{type(attack).name}, {spec.parties[0].partition(':')[0]}"


def power(seconds: list[float]) -> str:
    """Return the power that fits ``seconds`` at :data:`FACTORS` best in logarithms."""
    if min(seconds) < LEAST:
        return "."
    x, y = ([math.log(v) for v in values] for values in (FACTORS, seconds))
    middle = sum(x) / len(x)
    slope = sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)
    return f"{slope:.1f}"


def report(case: Case, grown_in: Sequence[str]) -> None:
    """Measure one protocol, ``grown_in`` some respects or in all, and print its table."""
    first = dataclasses.replace(case.size, rounds=2)
    _training(case.build(first), case.graph(first))  # the first of a process imports what the others use
    once = measure(case, case.size)
    respects = [what for what in case.size.respects() if what in grown_in or not grown_in]
    grown = {
        what: [once, *(measure(case, case.size.grown(what, factor)) for factor in FACTORS[1:])] for what in respects
    }
    settings = " ".join(f"{name}={value}" for name, value in case.arguments.items())
    start = ", ".join(f"{getattr(case.size, what)} {what}" for what in case.size.respects())
    print(f"{case.protocol} {settings} from {start}")
    print(f"{'':44}{'seconds':>9}", *(f"{what:>9}" for what in respects))
    for name, seconds in once.items():
        powers = [power([run.get(name, 0.0) for run in grown[what]]) for what in respects]
        print(f"  {name:42}{seconds:9.2f}", *(f"{p:>9}" for p in powers), flush=True)


def main() -> None:
    """Print one table per protocol."""
    parser = argparse.ArgumentParser(prog="python -m bench.speed.growth", description=__doc__)
    parser.add_argument("protocol", nargs="*", help="all of them by default")
    parser.add_argument("--in", dest="grown_in", nargs="+", default=[], choices=Size().respects(), help="default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in CASES:
        if not options.protocol or case.protocol in options.protocol:
            report(case, options.grown_in)


if __name__ == "__main__":
    main()
