"""What GFL-APPNP's server and one client read at the paper's size: 200 nodes, 100 features, 64 hidden units, the
paper's updates.

Directions count where a claimed row has |cosine| > 0.9999 with a target. The other columns are about the rows whose
direction is right: ``right_node``, how many name the node; ``scale_error``, the median of | |row| / |x| - 1 |;
``median_cosine`` is over all targets, with the attack's own assignment. Seconds are process time.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.functional import normalize

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import SERVER, Jacobians
from fglaudit.protocols.gfl_appnp import gfl_appnp
from fglaudit.quantities.rows.claims import SAME_DIRECTION, check_claims
from fglaudit.quantities.rows.game import Game, score
from fglaudit.recording import Kept, record_training
from fglaudit.reproduce.measurements import Table
from fglaudit.reproduce.papers.gfl_appnp import SETTINGS
from fglaudit.rng import derive
from fglaudit.scoring import GroundTruth
from fglaudit.view import Observer, View
from fglaudit.wire.channel import Keep

KEY = ("dataset", "variant", "learning_rate", "attack", "observer", "topology", "draw")
VALUES = (
    "accuracy",
    "targets",
    "direction_rate",
    "claimed_rate",
    "false_claim_rate",
    "exact_rate",
    "median_cosine",
    "right_node",
    "scale_error",
    "label_accuracy",
    "train_cpu_seconds",
    "attack_cpu_seconds",
    "peak_rss_gb",
)
JACOBIAN_ROUNDS = 100
"""Rounds of every node's Jacobians that are kept where nodes have several samples; the attack reads no more."""


class Case(NamedTuple):
    dataset: str
    variant: str
    learning_rate: float
    attack: str
    observer: str
    topology: bool
    draw: int


def cases() -> Iterator[Case]:
    """Yield all measurements, cheap ones first."""
    for draw in (0, 1, 2):
        for topology in (False, True):
            yield Case("csbm-dnc", "full", 0.5, "mask-flip", "client:0", topology, draw)
    yield Case("csbm-dnc", "full", 0.5, "jacobian-reading", "server", False, 0)
    for observer in ("server", "client:0"):
        yield Case("csbm-dnc", "full", 0.5, "label-reading", observer, True, 0)
    yield Case("csbm-dnc", "v2", 0.5, "representation-inversion", "server", False, 0)
    yield Case("csbm-dnc", "v1", 0.5, "mask-flip", "client:0", True, 0)
    for rate in (0.5, 0.1, 0.02):
        yield Case("csbm-dnc", "v1", rate, "jacobian-reading", "server", False, 0)
    for dataset in ("csbm-snc", "csbm-sc"):
        rate = SETTINGS[dataset]["learning_rate"]
        yield Case(dataset, "full", rate, "mask-flip", "client:0", True, 0)
        yield Case(dataset, "full", rate, "jacobian-reading", "server", False, 0)


def run(results: Path) -> None:
    """Measure what is missing in ``results/gfl_appnp_attacks.csv``, then print the table."""
    table = Table(results / "gfl_appnp_attacks.csv", KEY, VALUES)
    for case in cases():
        if not table.has(case._asdict()):
            figures = measure(case)
            table.add({**dict.fromkeys(VALUES, ""), **case._asdict(), **figures})
            print(*case, figures, flush=True)
    for row in table.rows():
        print(*(f"{name}={value}" for name, value in row.items() if value))


def measure(case: Case, **changes: Any) -> dict[str, str]:
    """Return the figures of one case.

    Args:
        changes: fields of the protocol that differ from the paper's.
    """
    spec = DatasetSpec(case.dataset, draw=case.draw)
    graph = PartitionSpec("per-node").apply(spec.load(), spec, derive(case.draw, "partition"))
    settings = SETTINGS[case.dataset] | {"learning_rate": case.learning_rate}
    rounds = settings.pop("updates") // 10
    protocol = gfl_appnp.GFLAPPNP(
        **{"variant": case.variant, "rounds": rounds, "local_steps": 10, **settings, **changes}
    )
    parties = (SERVER,) if case.observer == "server" else (int(case.observer.removeprefix("client:")),)
    observer = Observer(parties, topology=case.topology)
    attack = registry.build("attack", case.attack, {})
    with tempfile.TemporaryDirectory(prefix="fglaudit-") as spool:
        start = time.process_time()
        recording, truth = record_training(
            graph,
            protocol,
            NoDefense(),
            seed=case.draw,
            keep=Kept(messages=kept(graph, observer, attack), clients=observer.clients, folder=Path(spool)),
        )
        middle = time.process_time()
        view = recording.view(observer)
        result = attack.run(view, rng=derive(case.draw, "attack"), device=torch.device("cpu"))
        end = time.process_time()
    figures = labels(graph, result) if isinstance(result, Inference) else rows(truth, view, result)
    return {
        "accuracy": f"{truth.trained.whole_test_set:.4f}",
        **figures,
        "train_cpu_seconds": f"{middle - start:.1f}",
        "attack_cpu_seconds": f"{end - middle:.1f}",
        "peak_rss_gb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f}",
    }


def kept(graph: FederatedGraph, observer: Observer, attack: Attack) -> Keep:
    """Return what ``attack`` reads of what ``observer`` sees."""
    keep = Keep.for_attacks([observer], [attack])
    assert keep.payloads is not None
    if graph.x.dim() == 3 and Jacobians in keep.payloads:
        return Keep({**keep.payloads, Jacobians: JACOBIAN_ROUNDS - 1}, keep.parties)
    return keep


def labels(graph: FederatedGraph, result: Inference) -> dict[str, str]:
    """Return how often the best class is right."""
    truth = graph.y[result.subjects]
    right = float((result.estimate.argmax(1) == truth).double().mean())
    return {"targets": str(len(truth)), "label_accuracy": f"{right:.4f}"}


def rows(truth: GroundTruth, view: View, result: object) -> dict[str, str]:
    """Return the figures of a reconstruction."""
    assert isinstance(result, Reconstruction)
    (game,) = (Game.of(asked) for asked in truth.about([view.observer], False))
    found = score([game], [result], matching=False)
    claims = check_claims(result, game, view)
    claimed = torch.ones(len(result.rows), dtype=torch.bool) if result.claimed is None else result.claimed
    asserted, named = result.rows[claimed].double(), result.nodes[claimed]
    cosine, owner = (normalize(asserted, dim=1) @ normalize(game.truth.double(), dim=1).T).abs().max(1)
    right = cosine > SAME_DIRECTION
    figures = {
        "targets": str(len(game.targets)),
        **{name: f"{value:.5f}" for name, value in claims.columns().items() if value is not None},
        "exact_rate": f"{float(found.rows.exact_rate.mean()):.5f}",
        "median_cosine": f"{float(found.rows.cosine.median()):.6f}",
    }
    if bool(right.any()):
        ratio = asserted[right].norm(dim=1) / game.truth[owner[right]].double().norm(dim=1)
        figures["right_node"] = f"{float((named[right] == game.targets[owner[right]]).double().mean()):.4f}"
        figures["scale_error"] = f"{float((ratio - 1).abs().median()):.5f}"
    return figures
