"""What updates tell the server on Cora: the rows of first layers, against hidden units, rounds, local steps and
training nodes per client, and label distributions of training nodes from honest and from crafted weights.

Clients by Dirichlet with beta 10000. ``small`` is the exact rate at clients with up to 8 training nodes; ``rank_limit``
is the number of units times the rounds that are read, ``rows`` the median number of rows per client. Of feature rows
(``update-subset-sum``), ``rows`` is how many different ones the sums are made of, ``rank_limit`` how many of these have
a degree that no other row in one of their sums has, and ``small`` the share of ``rows`` that is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.sums.differenced_sums import DifferencedSums
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.attacks.updates.adam_inversion import AdamInversion
from fglaudit.attacks.updates.differenced_updates import DifferencedUpdates
from fglaudit.attacks.updates.update_inversion import UpdateInversion
from fglaudit.attacks.updates.update_shares import UpdateShares
from fglaudit.attacks.updates.update_subset_sum import UpdateSubsetSum
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Defense
from fglaudit.observers import ObserverSpec
from fglaudit.parties.base import Behaviour
from fglaudit.parties.crafted_weights import CraftedWeights
from fglaudit.parties.insert_edges import InsertEdges
from fglaudit.parties.repeat_models import RepeatModels
from fglaudit.parties.repeat_pretraining import RepeatPretraining
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import ModelUpdate, NeighborSums
from fglaudit.recording import Kept, record_training
from fglaudit.registry import build
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.scoring.score import Scorer
from fglaudit.suite.cell import server_label
from fglaudit.wire.channel import Keep

KEY = ("case", "clients", "observer", "server", "attack", "seed")
VALUES = ("status", "targets", "metric", "value", "small", "control", "cosine", "rows", "rank_limit", "reason")
SMALL = 8


@dataclass(frozen=True)
class Case:
    """One training and the attack on it."""

    name: str
    settings: dict[str, Any]
    attack: Attack = field(default_factory=UpdateInversion)
    protocol: str = "fedgcn"
    clients: int = 20
    observer: str = "server"
    server: Behaviour | None = None
    defense: Defense = field(default_factory=NoDefense)


ONE_STEP = {"hops": 1, "hidden": 64, "rounds": 1, "local_steps": 1, "dropout": 0.0}


def cases() -> Iterator[Case]:
    """Yield all cases, those with a bar first."""
    yield Case("1 hop, 64 units, 1 step, no dropout", ONE_STEP)
    yield Case("1 hop, 64 units, 1 step, no dropout", ONE_STEP, UpdateSubsetSum())
    for hops in (1, 2):
        for rounds in (1, 2, 4, 8):
            name = f"{hops} hops, defaults, {rounds} rounds"
            yield Case(name, {"hops": hops, "rounds": rounds}, UpdateInversion(rounds=rounds))
    adam = {"hops": 2, "rounds": 8, "optimizer": "adam", "learning_rate": 0.01}
    yield Case("2 hops, defaults but Adam, 8 rounds", adam)
    for hops, steps, rounds in ((1, 1, 1), (1, 1, 8), (1, 3, 8), (0, 1, 8), (0, 3, 8), (2, 1, 8), (2, 3, 8)):
        settings = {**adam, "hops": hops, "local_steps": steps, "rounds": rounds}
        name = f"{hops} hops, Adam, {steps} steps, {rounds} rounds"
        yield Case(name, settings, AdamInversion(rounds=rounds))
    idle = {**adam, "hops": 1, "hidden": 64, "local_steps": 1, "rounds": 1, "dropout": 0.0}
    yield Case("1 hop, Adam, 64 units, 1 step, no dropout", idle, AdamInversion(rounds=1))
    for steps in (2, 3, 5, 10, 20):
        yield Case(f"1 hop, 64 units, {steps} steps, no dropout", {**ONE_STEP, "local_steps": steps})
    for clients in (5, 10, 40):
        yield Case("1 hop, 64 units, 1 step, no dropout", ONE_STEP, clients=clients)
    yield Case("1 hop, 64 units, 1 step, 8 rounds, no dropout", {**ONE_STEP, "rounds": 9}, observer="client:0")
    for rounds in (1, 4, 8):
        settings = {"rounds": rounds, "feature_dropout": 0.0}
        yield Case(f"no feature dropout, {rounds} rounds", settings, UpdateInversion(rounds=rounds), "fedgat")
    yield Case("defaults", {"rounds": 1}, protocol="fedgat")
    for clients in (5, 10, 20):
        for hops in (1, 2):
            for server in (None, CraftedWeights()):
                name = f"{hops} hops, defaults"
                yield Case(name, {"hops": hops, "rounds": 9}, UpdateShares(), clients=clients, server=server)
        yield Case("defaults", {"rounds": 9}, UpdateShares(), "fedgat", clients, server=CraftedWeights())
    for inserting in (None, InsertEdges(edges=50), InsertEdges(edges=200)):
        sums = {"hops": 1, "rounds": 1, "aggregate": "counts"}
        yield Case("1 hop, counts", sums, RowSpace(), clients=10, observer="client:0", server=inserting)
    sampled = {**ONE_STEP, "rounds": 32, "participation": 0.5}
    for repeating in (None, RepeatModels()):
        for attack in (UpdateInversion(), DifferencedUpdates()):
            name = "1 hop, 64 units, 1 step, no dropout, secure aggregation of every other"
            yield Case(name, sampled, attack, server=repeating, defense=SecureAggregation(on=("ModelUpdate",)))
    totals = {"hops": 1, "rounds": 1}
    yield Case("1 hop", totals, ServerPartialSums(), clients=10)
    yield Case("1 hop, secure aggregation", totals, ServerPartialSums(), clients=10, defense=SecureAggregation())
    for absent in (1, 10):
        again, masks = RepeatPretraining(clients=absent), SecureAggregation()
        name = "1 hop, secure aggregation"
        yield Case(name, totals, DifferencedSums(), clients=10, server=again, defense=masks)


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing in ``results/update-inversion.csv``, then print it."""
    table = Table(results / "update-inversion.csv", KEY, VALUES)
    spec = DatasetSpec(name="cora", root=root)
    whole, _ = spec.load_with_notes()
    for seed in range(seeds):
        for case in cases():
            key = {"case": f"{case.protocol}: {case.name}", "clients": case.clients, "observer": case.observer}
            key |= {"server": server_label(case.server), "attack": type(case.attack).name, "seed": seed}
            if not table.has(key):
                partition = PartitionSpec("dirichlet", case.clients, 10000.0)
                graph = partition.apply(whole, spec, derive(seed, "partition"))
                table.add({**key, **measured(case, graph, seed)})
                print(*table.rows()[-1].values(), sep=" | ", flush=True)


def measured(case: Case, graph: FederatedGraph, seed: int) -> dict[str, str]:
    """Return the figures of one case."""
    graph = graph if case.server is None else case.server.claims(graph)
    protocol = build("protocol", case.protocol, case.settings)
    recording, truth = record_training(
        graph,
        protocol,
        case.defense,
        seed=seed,
        keep=Kept(messages=Keep({ModelUpdate: 32, NeighborSums: None})),
        behaviour=case.server,
    )
    scorer = Scorer(truth)
    observers = [ObserverSpec((case.observer,))]
    [output] = run_attacks(recording, observers, [case.attack], nothing_to_ask=scorer.nothing_to_ask)
    result = scorer.measure(output)
    found = result.finding
    figures = {name: getattr(found, name) for name in ("targets", "metric", "value", "control", "cosine", "reason")}
    figures |= {"status": found.status.value, "small": None, "rows": None, "rank_limit": None}
    if isinstance(case.attack, UpdateSubsetSum):
        reached, apart = summed_rows(graph)
        figures |= {"rows": reached, "rank_limit": apart}
        if found.value is not None:
            figures["small"] = found.value * (found.targets or 0) / reached
    if isinstance(case.attack, UpdateInversion | AdamInversion):
        inputs = protocol.layer_inputs(graph, [graph.client(k) for k in range(graph.num_clients)])
        clients, counts = torch.unique_consecutive(inputs[0], return_counts=True)
        width = next(iter(recording.public.layout.values()))[1]
        rounds = min(case.attack.rounds, case.settings["rounds"])
        figures |= {"rows": int(counts.median().item()), "rank_limit": width * rounds}
        if case.observer == "server" and result.clusters:
            kept = [result.clusters[k] for k in clients.tolist() if int(graph.train[k].sum().item()) <= SMALL]
            exact = sum(control + gained - lost for _, control, gained, lost in kept)
            figures["small"] = exact / sum(row[0] for row in kept) if kept else None
    return {name: _text(figures[name]) for name in VALUES}


def summed_rows(graph: FederatedGraph) -> tuple[int, int]:
    """Return how many different feature rows the sums of training nodes and of their own neighbours are made of, and
    how many of them have a degree that no other row in one of these sums has."""
    owner, degrees = graph.owner(), graph.degrees()
    row, source = torch.cat([graph.edge_index, torch.arange(graph.num_nodes).expand(2, -1)], 1)
    train = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for nodes, mask in zip(graph.clients, graph.train, strict=True):
        train[nodes[mask]] = True
    read = torch.zeros_like(train)
    read[source[train[row] & (owner[row] == owner[source])]] = True
    row, source = row[read[row]], source[read[row]]
    entries = torch.stack([row, degrees[source]], 1)
    _, which, count = torch.unique(entries, dim=0, return_inverse=True, return_counts=True)
    return len(source.unique()), len(source[count[which] == 1].unique())


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
