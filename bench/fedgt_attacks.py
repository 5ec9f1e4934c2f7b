"""What FedGT's uploads tell the server: every attack on Cora, 10 non-overlapping clients, with and without noise, and how fast
noise averages out.

Settings as in ``bench.fedgt_tables``; the server knows one row in ten. ``none`` sends in the clear, ``paper`` is the paper's
noise on the global nodes (delta 0.002, lambda 0.001), ``both`` the same noise on updates too. Training runs as many rounds as
the attacks read, but 100 for the averaging of noise.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from bench.fedgt_tables import Case, federated
from bench.table import Table
from fglaudit.arena import Arena
from fglaudit.attacks.absent_words import AbsentWords
from fglaudit.attacks.global_node_denoising import GlobalNodeDenoising
from fglaudit.attacks.global_node_labels import GlobalNodeLabels
from fglaudit.attacks.global_node_membership import GlobalNodeMembership
from fglaudit.attacks.linkage import GlobalNodeLinkage, UpdateLinkage
from fglaudit.attacks.one_node_clusters import OneNodeClusters
from fglaudit.attacks.update_labels import UpdateLabels
from fglaudit.channel import Keep, RecordingChannel
from fglaudit.defenses.clipped_laplace import ClippedLaplace
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Finding, Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Context, Defense
from fglaudit.measure import measure
from fglaudit.payloads import SERVER, GlobalNodes, MessageBatch, Payload
from fglaudit.protocols.fedgt import FedGT
from fglaudit.quantities import Facts
from fglaudit.rng import derive
from fglaudit.testing import Run
from fglaudit.transcript import Transcript
from fglaudit.view import Observer

KEY = ("dataset", "clients", "defense", "auxiliary", "attack", "seed")
VALUES = ("status", "metric", "value", "control", "cosine", "tv_error", "tpr_at_fpr_1", "claimed", "false_claims")
DEFENSES: dict[str, Defense] = {
    "none": NoDefense(),
    "paper": ClippedLaplace(clip=0.002, scale=0.001, on=("GlobalNodes",)),
    "both": ClippedLaplace(clip=0.002, scale=0.001, on=("GlobalNodes", "ModelUpdate")),
}
ATTACKS: tuple[Attack, ...] = (
    GlobalNodeLabels(),
    UpdateLabels(),
    GlobalNodeMembership(),
    AbsentWords(),
    GlobalNodeLinkage(),
    UpdateLinkage(),
    OneNodeClusters(),
)
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


def train(graph: FederatedGraph, defense: Defense, seed: int, rounds: int, keep: Keep) -> tuple[Run, Tensor]:
    """Return a recorded run and the global nodes before any noise [T, K, g, d]."""
    protocol = FedGT(rounds=rounds)
    context = Context(protocol.name, rounds, graph.num_clients, graph.num_features, protocol.releases(graph))
    session, transcript = defense.bind(context), Transcript()
    channel = _Sent(session, graph.num_clients, derive(seed, "defense"), transcript, keep)
    trained = protocol.train(graph, channel, rng=derive(seed, "train"), device=torch.device("cpu"))
    return Run(protocol, graph, session, defense, trained, transcript, channel), torch.stack(channel.plain)  # type: ignore[arg-type]


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing in ``results/fedgt_attacks.csv`` and ``results/fedgt_noise.csv``, then print both tables."""
    table = Table(results / "fedgt_attacks.csv", KEY, VALUES)
    for seed in range(seeds):
        graph = federated(Case("cora", "non-overlapping", 10, "fedgt", seed), root)
        for name, defense in DEFENSES.items():
            keys = [
                {"dataset": "cora", "clients": 10, "defense": name, "auxiliary": auxiliary, "attack": attack.name, "seed": seed}
                for auxiliary in (0.0, 0.1)
                for attack in ATTACKS
            ]
            if all(table.has(key) for key in keys):
                continue
            recorded, _ = train(graph, defense, seed, ROUNDS, Keep.for_attacks([Observer(parties=(SERVER,))], ATTACKS))
            for key, attack in zip(keys, ATTACKS * 2, strict=True):
                table.add({**key, **figures(recorded, attack, float(str(key["auxiliary"])), seed)})
    noise = Table(results / "fedgt_noise.csv", ("dataset", "clients", "rounds", "seed"), NOISE_VALUES)
    for seed in range(seeds):
        if not all(noise.has({"dataset": "cora", "clients": 10, "rounds": looks, "seed": seed}) for looks in LOOKS):
            add_noise_rows(noise, root, seed)
    for row in (*table.rows(), *noise.rows()):
        print(*(f"{name}={value}" for name, value in row.items()))


def figures(recorded: Run, attack: Attack, auxiliary: float, seed: int) -> dict[str, str]:
    """Return the figures of one attack by the server."""
    observer = Observer(parties=(SERVER,), auxiliary=auxiliary)
    view = recorded.view(observer, seed=seed)
    facts = Facts(recorded.graph, recorded.protocol, observer, view.auxiliary, recorded.trained.truth, False)
    fields = {f.name: "" for f in dataclasses.fields(Finding) if f.default is dataclasses.MISSING}
    blank = Finding(**{**fields, "attack": attack.name, "status": Status.OK, "clients": 10, "seed": seed})  # type: ignore[arg-type]
    found = measure(attack, blank, Arena((view,), (facts,), seed), torch.device("cpu")).finding
    claimed = None if found.claimed_rate is None or found.targets is None else round(found.claimed_rate * found.targets)
    named = {"status": found.status.value, "metric": found.metric, "claimed": claimed, "false_claims": found.false_claim_rate}
    numbers = {name: getattr(found, name) for name in VALUES if name not in named}
    return {
        name: "" if v is None else f"{v:.4f}" if isinstance(v, float) else str(v) for name, v in {**named, **numbers}.items()
    }


NOISE_VALUES = (
    "last_upload",
    "mean",
    "filter",
    "one_over_sqrt",
    "moved_in_one_round",
    "cosine_before_clip",
    "cosine_of_clipped",
)


def add_noise_rows(table: Table, root: str | None, seed: int) -> None:
    """Add the errors of the last global nodes, relative to their clipped values, from the last T uploads alone."""
    graph = federated(Case("cora", "non-overlapping", 10, "fedgt", seed), root)
    recorded, plain = train(graph, DEFENSES["paper"], seed, max(LOOKS), Keep({GlobalNodes: None}))
    view = recorded.view(Observer(parties=(SERVER,)))
    uploads = [b.payload for b in view.messages.of(GlobalNodes) if int(b.senders[0].item()) != SERVER]
    uploaded = torch.stack([p.values for p in uploads if isinstance(p, GlobalNodes)])
    bound, noise = 0.002, view.public.noise["GlobalNodes"]
    clipped = plain.clamp(-bound, bound)
    truth = clipped[-1]
    for looks in LOOKS:
        seen = uploaded[-looks:]
        found = GlobalNodeDenoising().denoise(seen, noise, bound)
        errors = [_error(e, truth) for e in (seen[-1], seen.mean(0), found)]
        errors += [errors[0] / looks**0.5, _error(clipped[-2], truth), _cosine(found, plain[-1]), _cosine(truth, plain[-1])]
        row = {name: f"{e:.4f}" for name, e in zip(NOISE_VALUES, errors, strict=True)}
        table.add({"dataset": "cora", "clients": 10, "rounds": looks, "seed": seed, **row})


def _error(found: Tensor, truth: Tensor) -> float:
    """Return the relative error, mean over clients."""
    return float(((found - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)).mean().item())


def _cosine(found: Tensor, truth: Tensor) -> float:
    return float(torch.cosine_similarity(found.flatten(1), truth.flatten(1), dim=1).mean().item())
