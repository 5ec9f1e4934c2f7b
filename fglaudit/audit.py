"""One cell from data to findings: load, partition, train through the channel, then every observer with every attack."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fglaudit.empirical.bound import Bound
from fglaudit.empirical.defense import audit_defense
from fglaudit.execution.rows import blank_finding, blank_record
from fglaudit.finding import CellRecord, Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import SERVER_TRUSTED, DefenseSession, FederatedProtocol, Guarantee, Trained
from fglaudit.observers import expand
from fglaudit.partition import partition_facts
from fglaudit.payloads import SERVER
from fglaudit.quantities import Truth
from fglaudit.rng import derive
from fglaudit.scoring.arena import Arena
from fglaudit.scoring.game import Game
from fglaudit.scoring.measure import Measurement, measure
from fglaudit.suite.cell import Cell, describe
from fglaudit.view import Observer, PublicFacts, View
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.side_knowledge import draw_auxiliary, make_view, save_views
from fglaudit.wire.transcript import Transcript

Progress = Callable[[int, int], None]


def run_cell(
    cell: Cell,
    *,
    suite: str,
    device: torch.device,
    progress: Progress | None = None,
    transcript_dir: Path | None = None,
) -> CellRecord:
    """Train one cell, record it, attack it, and return its record.

    An attack that fails becomes a `failed` row; errors of data, partition or training are raised, since then nothing
    was measured at all.

    Args:
        progress: called with (round, rounds) during training.
        transcript_dir: where the transcript is kept when the cell says ``record: all``.
    """
    kept = transcript_dir if cell.record == "all" else None
    # Recorded messages can be larger than memory: they lie on disk, for good or until the cell is done.
    with tempfile.TemporaryDirectory(prefix="fglaudit-") as spool:
        return _run_cell(cell, suite, device, progress, kept, Path(spool))


def _run_cell(
    cell: Cell, suite: str, device: torch.device, progress: Progress | None, kept: Path | None, spool: Path
) -> CellRecord:
    whole, notes = cell.dataset.load_with_notes()
    graph = cell.partition.apply(whole, cell.dataset, derive(cell.seed, "partition"))
    protocol = cell.protocol
    protocol.check(graph)
    context = protocol.context(graph)
    refused = cell.defense.unsupported(context)
    if refused is not None:
        return blank_record(cell, suite, Status.NOT_APPLICABLE, refused)
    session = cell.defense.bind(context)
    groups = [(spec, *expand(spec, graph.num_clients)) for spec in cell.observers]

    observers = [observer for _, members, _ in groups for observer in members]
    transcript = Transcript(kept or spool)
    keep = Keep.for_attacks(observers, cell.attacks) if kept is None else Keep()
    channel = RecordingChannel(session, graph.num_clients, derive(cell.seed, "defense"), transcript, keep, progress)
    start = time.perf_counter()
    trained = protocol.train(graph, channel, rng=derive(cell.seed, "train"), device=device)
    seconds = time.perf_counter() - start

    promise = session.guarantee()
    shown, remarks = _empirical_bound(cell, graph, session, promise, device)
    public = _public_facts(cell, graph, session, trained)
    shared: dict[str, Any] = {
        "clients": graph.num_clients,
        "accuracy": trained.client_mean,
        "accuracy_global": trained.whole_test_set,
        "bytes_up": int(channel.bytes_up.sum().item()),
        "bytes_down": int(channel.bytes_down.sum().item()),
        "ciphertext_bytes": channel.bytes_sealed or None,
        "seconds_train": seconds,
        "device": str(device),
    }
    rows: list[Measurement] = []
    saved_views: list[View] = []
    for spec, members, pooled in groups:
        auxiliary = draw_auxiliary(graph, spec.auxiliary, cell.seed)
        views = [
            make_view(o, graph, transcript, public, auxiliary, protocol.labelled(graph, o), channel.inputs)
            for o in members
        ]
        truths = [Truth(graph, protocol, o, auxiliary, trained.truth, pooled) for o in members]
        saved_views += views
        arena = Arena(tuple(views), tuple(truths), cell.seed)
        promised = _guarantee_columns(promise, shown, members)
        for attack in cell.attacks:
            blank = replace(blank_finding(cell, suite, spec, type(attack).name, Status.OK, ""), **shared, **promised)
            rows.append(measure(attack, blank, arena, device))
    if kept is not None:
        transcript.save(kept)
        save_views(saved_views, kept)
        everyone = Observer(parties=(SERVER,))
        Game.of(graph, protocol, everyone, draw_auxiliary(graph, 0.0, cell.seed), False).save(kept / "game.safetensors")
    keys = [f"{r.finding.observer}|{r.finding.observer_knowledge}|{r.finding.attack}" for r in rows]
    return CellRecord(
        cell=cell.hash(),
        description=cell.description(),
        findings=tuple(r.finding for r in rows),
        clusters={key: r.clusters for key, r in zip(keys, rows, strict=True) if r.clusters},
        breakdowns={key: r.breakdown for key, r in zip(keys, rows, strict=True) if r.breakdown},
        partition_facts=partition_facts(graph, whole),
        history={
            "accuracy": [float(v) for v in trained.accuracy.nanmean(1).tolist()],
            "accuracy_global": [float(v) for v in trained.accuracy_global.tolist()],
        },
        notes=(*notes, *trained.notes, *remarks),
    )


def _public_facts(cell: Cell, graph: FederatedGraph, session: DefenseSession, trained: Trained) -> PublicFacts:
    return PublicFacts(
        protocol=type(cell.protocol).name,
        hyperparameters=describe(cell.protocol),
        defense=type(cell.defense).name,
        defense_parameters={**describe(cell.defense), **session.parameters()},
        **graph.schema(),
        layout=trained.layout,
        noise=session.noise(),
        facts=session.facts(),
        sealed=cell.protocol.sealed(graph, session),
        whole_models=cell.protocol.whole_models(graph),
        fit=_fit(cell.protocol),
    )


def _fit(protocol: FederatedProtocol) -> Callable[..., Trained]:
    """Return the public training function: the same protocol on a graph of the attacker's own, over a channel nobody
    hears."""

    def fit(graph: FederatedGraph, rng: torch.Generator, device: torch.device) -> Trained:
        silent = RecordingChannel(DefenseSession(), graph.num_clients, rng)
        return protocol.train(graph, silent, rng=rng, device=device)

    return fit


def _empirical_bound(
    cell: Cell, graph: FederatedGraph, session: DefenseSession, promise: Guarantee, device: torch.device
) -> tuple[Bound | None, tuple[str, ...]]:
    """Return what a canary shows of the accounted epsilon, or None, with notes on what it could not show."""
    if promise.epsilon_accounted is None or not cell.empirical:
        return None, ()
    bound = audit_defense(cell.protocol, graph, session.promised_by(), promise, seed=cell.seed, device=device)
    if isinstance(bound, str):
        return None, (f"the accounted epsilon was not tested: {bound}",)
    if bound.ceiling >= promise.epsilon_accounted:
        return bound, ()
    limit = f"{bound.trials} replays show at most {bound.ceiling:.3g}"
    return bound, (f"the empirical epsilon cannot reach the accounted {promise.epsilon_accounted:.4g}: {limit}",)


def _guarantee_columns(promise: Guarantee, shown: Bound | None, members: Sequence[Observer]) -> dict[str, Any]:
    """Return what a row says of the promise; an observer that it is not about gets no epsilon."""
    words = (
        promise.mechanism,
        promise.key_custody,
        promise.adjacency,
        SERVER_TRUSTED if promise.server_trusted else "",
    )
    columns: dict[str, Any] = {
        "mechanism": "; ".join(filter(None, words)),
        "privacy_unit": promise.unit,
        "releases": promise.releases,
    }
    if not all(promise.covers(observer) for observer in members):
        return columns
    return {
        "epsilon_claimed": promise.epsilon_claimed,
        "epsilon_accounted": promise.epsilon_accounted,
        "epsilon_empirical": None if shown is None else shown.epsilon,
        "epsilon_p_value": None if shown is None else shown.p_value(promise.epsilon_accounted or 0.0),
        "delta": promise.delta,
        **columns,
    }
