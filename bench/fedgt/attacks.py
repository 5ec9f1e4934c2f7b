"""What FedGT's uploads tell the server: every attack on Cora, 10 non-overlapping clients, with and without noise, and
how fast noise averages out.

Partitions and seeds as in ``fglaudit reproduce fedgt-table1``; the server knows one row in ten. The attacks were made
on Cora with seed 0 and on CiteSeer; no figure of the seeds measured here was seen before. Training runs as many rounds
as the attacks read, but 100 for the averaging of noise.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fglaudit.adversary.uploads.held import codebooks
from fglaudit.attacking import run_attacks
from fglaudit.attacks.global_nodes.clusters import upload_error
from fglaudit.attacks.global_nodes.global_node_centroids import GlobalNodeCentroids
from fglaudit.attacks.global_nodes.global_node_denoising import GlobalNodeDenoising
from fglaudit.attacks.global_nodes.global_node_labels import GlobalNodeLabels
from fglaudit.attacks.global_nodes.global_node_linkage import GlobalNodeLinkage
from fglaudit.attacks.global_nodes.global_node_membership import GlobalNodeMembership
from fglaudit.attacks.global_nodes.one_node_clusters import OneNodeClusters
from fglaudit.attacks.updates.absent_words import AbsentWords
from fglaudit.attacks.updates.update_labels import UpdateLabels
from fglaudit.attacks.updates.update_linkage import UpdateLinkage
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Defense
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, GlobalNodes, MessageBatch, Payload
from fglaudit.privacy.mechanism import clip_messages
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.recording import Kept, Recording, record_training
from fglaudit.reproduce.measurements import Table
from fglaudit.reproduce.papers import fedgt
from fglaudit.scoring import GroundTruth, score
from fglaudit.view import Observer
from fglaudit.wire.channel import Keep, RecordingChannel

KEY = ("dataset", "clients", "case", "attack", "seed")
VALUES = (
    "status",
    "metric",
    "targets",
    "value",
    "control",
    "cosine",
    "control_cosine",
    "tv_error",
    "tpr_at_fpr_1",
    "claimed",
    "false_claims",
    "epsilon_claimed",
    "epsilon_accounted",
)


class Case(NamedTuple):
    """A defense and what the protocol has beside its defaults."""

    defense: Defense
    settings: Mapping[str, Any] = {}
    attacks: tuple[Attack, ...] = ()


BOTH = ("GlobalNodes", "ModelUpdate")
CASES = {
    "none, near start": Case(NoDefense(), {"global_scale": 0.01}),
    "paper": Case(ClippedLaplace(clip=0.002, scale=0.001, on=("GlobalNodes",))),
    "none": Case(NoDefense()),
    "paper, L1": Case(ClippedLaplace(clip=0.002, scale=0.001, norm="l1", on=("GlobalNodes",))),
    "on both": Case(ClippedLaplace(clip=0.002, scale=0.001, on=BOTH)),
    "on both, L1": Case(ClippedLaplace(clip=0.002, scale=0.001, norm="l1", on=BOTH)),
    "none, near start, 60 global nodes": Case(
        NoDefense(), {"global_scale": 0.01, "global_nodes": 60}, (OneNodeClusters(),)
    ),
}
AVERAGED = ("paper", "paper, L1")
"""``near start``: a codebook that starts near the origin, so that all of it is used without noise; ``paper``: the
paper's noise on the global nodes (delta 0.002, lambda 0.001), ``on both``: on updates too; ``L1``: clipped by the L1
norm."""
ATTACKS: tuple[Attack, ...] = (
    GlobalNodeLabels(),
    UpdateLabels(),
    GlobalNodeCentroids(),
    GlobalNodeMembership(),
    AbsentWords(),
    GlobalNodeLinkage(),
    UpdateLinkage(),
    OneNodeClusters(),
)
SERVER_WITH_ROWS = ObserverSpec(("server",), auxiliary=0.1)
ROUNDS = 12
LOOKS = (1, 2, 4, 8, 16, 32, 64, 100)


class _Sent(RecordingChannel):
    """Also keeps the global nodes as they were before the defense."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.plain: list[Tensor] = []

    def send(self, batch: MessageBatch) -> Payload:
        if isinstance(batch.payload, GlobalNodes) and bool((batch.senders != SERVER).all()):
            self.plain.append(batch.payload.values.cpu().clone())
        return super().send(batch)


def train(
    graph: FederatedGraph, case: Case, seed: int, rounds: int, keep: Keep
) -> tuple[Recording, GroundTruth, Tensor]:
    """Return a recorded run, its truth, and the global nodes before any noise [T, K, g, d]."""
    made: list[_Sent] = []

    def channel(*parts: Any) -> _Sent:
        made.append(_Sent(*parts))
        return made[0]

    protocol = FedGT(rounds=rounds, **case.settings)
    recording, truth = record_training(
        graph,
        protocol,
        case.defense,
        seed=seed,
        keep=Kept(messages=keep, clients=(), fractions={SERVER_WITH_ROWS.auxiliary}),
        channel=channel,
    )
    return recording, truth, torch.stack(made[0].plain)


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing in ``results/fedgt_attacks.csv`` and ``results/fedgt_noise.csv``, then print both
    tables."""
    table = Table(results / "fedgt_attacks.csv", KEY, VALUES)
    noise = Table(results / "fedgt_noise.csv", NOISE_KEY, NOISE_VALUES)
    graphs = {seed: fedgt.federated("cora", "non-overlapping", 10, seed, root) for seed in fedgt.SEEDS[:seeds]}
    for name, (seed, graph) in itertools.product(CASES, graphs.items()):
        case = CASES[name]
        missing = [a for a in case.attacks or ATTACKS if not table.has(_key(name, seed, attack=a.name))]
        if missing:
            recording, truth, _ = train(
                graph, case, seed, ROUNDS, Keep.for_attacks([Observer(parties=(SERVER,))], missing)
            )
        for attack in missing:
            table.add({**_key(name, seed, attack=attack.name), **figures(recording, truth, attack)})
            print(*table.rows()[-1].values(), flush=True)
        looks = LOOKS if name in AVERAGED else ()
        if not all(noise.has(_key(name, seed, rounds=count)) for count in looks):
            for row in noise_rows(graph, case, seed):
                noise.add({**_key(name, seed), **row})
    show(table, noise)


def _key(case: str, seed: int, **of: object) -> dict[str, object]:
    return {"dataset": "cora", "clients": 10, "case": case, "seed": seed, **of}


def figures(recording: Recording, truth: GroundTruth, attack: Attack) -> dict[str, str]:
    """Return the figures of one attack by the server."""
    (measured,) = score(run_attacks(recording, [SERVER_WITH_ROWS], [attack]), truth)
    found = measured.finding
    claimed = None if found.claimed_rate is None or found.targets is None else round(found.claimed_rate * found.targets)
    named = {"status": found.status.value, "claimed": claimed, "false_claims": found.false_claim_rate}
    verdict = recording.verdict
    named |= {"epsilon_claimed": verdict.claimed, "epsilon_accounted": verdict.epsilon}
    numbers = {name: getattr(found, name) for name in VALUES if name not in named}
    return {
        name: "" if v is None else f"{v:.5g}" if isinstance(v, float) else str(v)
        for name, v in {**named, **numbers}.items()
    }


NOISE_KEY = ("dataset", "clients", "case", "rounds", "seed")
NOISE_VALUES = (
    "last_upload",
    "mean",
    "filter",
    "one_over_sqrt",
    "moved_in_one_round",
    "cosine_before_clip",
    "cosine_of_clipped",
)


def noise_rows(graph: FederatedGraph, case: Case, seed: int) -> Iterator[dict[str, object]]:
    """Yield the errors of the last global nodes, relative to their clipped values, from the last T uploads alone."""
    recording, _, plain = train(graph, case, seed, max(LOOKS), Keep({GlobalNodes: None}))
    assert isinstance(case.defense, ClippedLaplace)
    view = recording.view(Observer(parties=(SERVER,)))
    books = codebooks(view)
    uploaded = books.uploaded
    clipped = torch.stack([clip_messages(values, case.defense.clip, case.defense.norm) for values in plain])
    truth = clipped[-1]
    for looks in LOOKS:
        seen = uploaded[-looks:]
        found = GlobalNodeDenoising().estimate(view, seen, upload_error(view, books))
        errors = [_error(e, truth) for e in (seen[-1], seen.mean(0), found)]
        errors += [
            errors[0] / looks**0.5,
            _error(clipped[-2], truth),
            _cosine(found, plain[-1]),
            _cosine(truth, plain[-1]),
        ]
        yield {"rounds": looks, **{name: f"{e:.4g}" for name, e in zip(NOISE_VALUES, errors, strict=True)}}


def _error(found: Tensor, truth: Tensor) -> float:
    """Return the relative error, mean over clients."""
    return float(((found - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)).mean().item())


def _cosine(found: Tensor, truth: Tensor) -> float:
    return float(torch.cosine_similarity(found.flatten(1), truth.flatten(1), dim=1).mean().item())


def show(table: Table, noise: Table) -> None:
    """Print means over seeds, and after how many rounds the noise is gone: what is left of the error is no more than
    the global nodes themselves move in one round."""
    for groups, kind, values in ((table, "attack", VALUES[2:]), (noise, "rounds", NOISE_VALUES)):
        rows: dict[tuple[str, str], list[Mapping[str, str]]] = {}
        for row in groups.rows():
            rows.setdefault((row["case"], row[kind]), []).append(row)
        for (case, of), runs in rows.items():
            texts = [f"{case}: {of}", f"runs={len(runs)}"]
            for name in values:
                given = [run[name] for run in runs if run[name]]
                numbers = [float(text) for text in given if name != "metric"]
                texts += (
                    [f"{name}={statistics.fmean(numbers):.4g}"] if numbers else [f"{name}={given[0]}"] if given else []
                )
            print(*texts)
    for case in dict.fromkeys(row["case"] for row in noise.rows()):
        means = {
            looks: [
                statistics.fmean(
                    float(r[name]) for r in noise.rows() if r["case"] == case and r["rounds"] == str(looks)
                )
                for name in ("filter", "moved_in_one_round")
            ]
            for looks in LOOKS
            if any(r["case"] == case and r["rounds"] == str(looks) for r in noise.rows())
        }
        gone = next((looks for looks, (left, moved) in means.items() if left <= moved), None)
        print(f"{case}: the noise is gone after", "no number of rounds" if gone is None else f"{gone} rounds")
