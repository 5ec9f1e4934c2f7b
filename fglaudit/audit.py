"""One cell from data to findings: load, partition, train through the channel, then every observer with every attack."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fglaudit.attacks.prior_only import prior_only
from fglaudit.cell import Cell, ObserverSpec, arguments, describe
from fglaudit.channel import Keep, RecordingChannel
from fglaudit.errors import FglauditError
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.game import Game, Score, breakdown, cluster_sums, score
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Context, DefenseSession, FederatedProtocol, Inference, Reconstruction, Trained
from fglaudit.partition import PartitionSpec, partition_facts
from fglaudit.payloads import SERVER
from fglaudit.rng import derive
from fglaudit.selftest import self_test
from fglaudit.side_knowledge import draw_auxiliary, make_view, save_views
from fglaudit.stats import UNINFORMATIVE, advantage_interval
from fglaudit.transcript import Transcript
from fglaudit.view import Observer, PublicFacts, View

Progress = Callable[[int, int], None]


@dataclass
class _Row:
    """What one observer x attack came to: a finding plus what the record keeps beside it."""

    finding: Finding
    clusters: list[list[float]] = field(default_factory=list)
    breakdown: dict[str, dict[str, float]] = field(default_factory=dict)


def expand(spec: ObserverSpec, num_clients: int) -> tuple[list[Observer], bool]:
    """Return the observers that ``spec`` stands for, and whether they are one client in turn, to be pooled.

    Raises:
        FglauditError: for an unknown party or a client that does not exist.
    """
    knowledge = {"topology": spec.topology, "degrees": spec.degrees}
    rest = {"initial_weights": spec.initial_weights, "auxiliary": spec.auxiliary}
    if spec.parties == ("wire",):
        return [Observer(wire=True, **knowledge, **rest)], False  # type: ignore[arg-type]
    each = "client:each" in spec.parties
    fixed: list[int] = []
    for party in spec.parties:
        if party == "server":
            fixed.append(SERVER)
        elif party != "client:each":
            kind, _, number = party.partition(":")
            if kind != "client" or not number.isdigit() or int(number) >= num_clients:
                raise FglauditError(
                    f"a party is server, wire (alone), client:each or client:0 ... client:{num_clients - 1}; got {party!r}"
                )
            fixed.append(int(number))
    groups = [(*fixed, k) for k in range(num_clients)] if each else [tuple(fixed)]
    return [Observer(parties=group, **knowledge, **rest) for group in groups], each  # type: ignore[arg-type]


def observer_name(spec: ObserverSpec) -> str:
    """Return the observer column: ``server``, ``client:each``, ``server+client:0`` ..."""
    return "+".join(spec.parties)


def blank_finding(cell: Cell, suite: str, spec: ObserverSpec, attack: str, status: Status, reason: str) -> Finding:
    """Return a row with the cell's identity and a status, for whatever could not be measured."""
    observer = Observer(
        topology=spec.topology, degrees=spec.degrees, initial_weights=spec.initial_weights, auxiliary=spec.auxiliary
    )
    partition = arguments(replace(cell.partition, clients=PartitionSpec.clients)).removeprefix("scheme=")
    return Finding(
        suite=suite,
        cell=cell.hash(),
        dataset=cell.dataset.name if cell.dataset.features == "raw" else f"{cell.dataset.name} ({cell.dataset.features})",
        partition=partition,
        clients=cell.partition.clients,
        protocol=type(cell.protocol).name,
        protocol_args=arguments(cell.protocol),
        server=cell.server,
        defense=type(cell.defense).name,
        defense_args=arguments(cell.defense),
        seed=cell.seed,
        observer=observer_name(spec),
        observer_knowledge=observer.knowledge,
        attack=attack,
        status=status,
        reason=reason,
    )


def blank_record(cell: Cell, suite: str, status: Status, reason: str) -> CellRecord:
    """Return the record of a cell that could not be run: one row per observer x attack, nothing dropped (rule 7)."""
    rows = tuple(
        blank_finding(cell, suite, spec, type(attack).name, status, reason)
        for spec in cell.observers
        for attack in cell.attacks
    )
    return CellRecord(cell.hash(), cell.description(), rows)


def run_cell(
    cell: Cell,
    *,
    suite: str,
    device: torch.device,
    progress: Progress | None = None,
    transcript_dir: Path | None = None,
) -> CellRecord:
    """Train one cell, record it, attack it, and return its record.

    An attack that fails becomes a `failed` row; errors of data, partition or training are raised, since then nothing was
    measured at all.

    Args:
        progress: called with (round, rounds) during training.
        transcript_dir: where the transcript is kept when the cell says ``record: all``.
    """
    whole, notes = cell.dataset.load_with_notes()
    graph = cell.partition.apply(whole, cell.dataset, derive(cell.seed, "partition"))
    protocol = cell.protocol
    protocol.check(graph)
    context = Context(type(protocol).name, protocol.num_rounds, graph.num_clients, graph.num_features, protocol.releases(graph))
    refused = cell.defense.unsupported(context)
    if refused is not None:
        return blank_record(cell, suite, Status.NOT_APPLICABLE, refused)
    session = cell.defense.bind(context)
    groups = [(spec, *expand(spec, graph.num_clients)) for spec in cell.observers]

    keep_all = cell.record == "all" and transcript_dir is not None
    consumed = {payload for attack in cell.attacks for payload in type(attack).consumes}
    observers = [observer for _, members, _ in groups for observer in members]
    transcript = Transcript(transcript_dir if keep_all else None)
    keep = Keep() if keep_all else Keep.for_observers(observers, consumed)
    channel = RecordingChannel(session, graph.num_clients, derive(cell.seed, "defense"), transcript, keep, progress)
    start = time.perf_counter()
    trained = protocol.train(graph, channel, rng=derive(cell.seed, "train"), device=device)
    seconds = time.perf_counter() - start

    public = _public_facts(cell, graph, session, trained)
    shared = {
        "clients": graph.num_clients,
        "accuracy": trained.client_mean,
        "accuracy_global": trained.whole_test_set,
        "bytes_up": int(channel.bytes_up.sum().item()),
        "bytes_down": int(channel.bytes_down.sum().item()),
        "seconds_train": seconds,
        "device": str(device),
        **_guarantee_columns(session),
    }
    rows, saved_views = [], []
    for spec, members, pooled in groups:
        auxiliary = draw_auxiliary(graph, spec.auxiliary, cell.seed)
        views = [make_view(o, graph, transcript, public, auxiliary) for o in members]
        games = [Game.of(graph, protocol, o, auxiliary, pooled) for o in members]
        saved_views += views
        controls = [
            prior_only(v, g.targets, rng=derive(cell.seed, "control", v.observer.name))
            for v, g in zip(views, games, strict=True)
        ]
        for attack in cell.attacks:
            blank = replace(blank_finding(cell, suite, spec, type(attack).name, Status.OK, ""), **shared)
            rows.append(_attack(attack, blank, views, games, controls, cell.seed, device))
    if keep_all and transcript_dir is not None:
        transcript.save(transcript_dir)
        save_views(saved_views, transcript_dir)
        everyone = Observer(parties=(SERVER,))
        Game.of(graph, protocol, everyone, draw_auxiliary(graph, 0.0, cell.seed), False).save(
            transcript_dir / "game.safetensors"
        )
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
        notes=notes,
    )


def _public_facts(cell: Cell, graph: FederatedGraph, session: DefenseSession, trained: Trained) -> PublicFacts:
    return PublicFacts(
        protocol=type(cell.protocol).name,
        hyperparameters=describe(cell.protocol),
        defense=type(cell.defense).name,
        defense_parameters={**describe(cell.defense), **session.parameters()},
        features=graph.features,
        num_nodes=graph.num_nodes,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        num_clients=graph.num_clients,
        layout=trained.layout,
        noise=session.noise(),
        fit=_fit(cell.protocol),
    )


def _fit(protocol: FederatedProtocol) -> Callable[..., Trained]:
    """Return the public training function: the same protocol on a graph of the attacker's own, over a channel nobody hears."""

    def fit(graph: FederatedGraph, rng: torch.Generator, device: torch.device) -> Trained:
        silent = RecordingChannel(DefenseSession(), graph.num_clients, rng)
        return protocol.train(graph, silent, rng=rng, device=device)

    return fit


def _guarantee_columns(session: DefenseSession) -> dict[str, Any]:
    promise = session.guarantee()
    return {
        "epsilon_claimed": promise.epsilon_claimed,
        "epsilon_accounted": promise.epsilon_accounted,
        "delta": promise.delta,
        "privacy_unit": promise.unit,
        "mechanism": f"{promise.mechanism}; {promise.adjacency}" if promise.adjacency else promise.mechanism,
        "releases": promise.releases,
    }


def _attack(
    attack: Attack,
    blank: Finding,
    views: Sequence[View],
    games: Sequence[Game],
    controls: Sequence[Reconstruction],
    seed: int,
    device: torch.device,
) -> _Row:
    """Run one attack on every view of an observer, self-test it, and score it beside its control."""
    if not any(len(g.targets) for g in games):
        reason = "no node's features reach this observer: nothing that depends on them is sent"
        return _Row(replace(blank, status=Status.NOT_APPLICABLE, reason=reason))
    unsupported = next((why for view in views if (why := attack.unsupported(view)) is not None), None)
    if unsupported is not None:
        return _Row(replace(blank, status=Status.NOT_APPLICABLE, reason=unsupported))
    name = type(attack).name
    start = time.perf_counter()
    try:
        results = [attack.run(v, rng=derive(seed, "attack", name, v.observer.name), device=device) for v in views]
        seconds = time.perf_counter() - start
        largest = max(range(len(games)), key=lambda i: len(games[i].targets))
        broken = self_test(
            attack,
            views[largest],
            controls[largest],
            games[largest].targets,
            games[largest].truth,
            rng=derive(seed, "self-test", name),
            device=device,
        )
    except Exception as error:  # one attack's failure must not cost the others; the row says what happened (rule 7)
        reason = f"{type(error).__name__}: {error}"
        return _Row(replace(blank, status=Status.FAILED, reason=reason))
    rebuilt = [r for r in results if isinstance(r, Reconstruction)]
    if len(rebuilt) < len(results):
        kinds = sorted({r.kind for r in results if isinstance(r, Inference)})
        return _Row(replace(blank, status=Status.FAILED, reason=f"no scorer for inferences of kind {', '.join(kinds)}"))
    return _scored(attack, blank, games, score(games, rebuilt), score(games, controls, matching=False), broken, seconds, seed)


def _scored(
    attack: Attack,
    blank: Finding,
    games: Sequence[Game],
    found: Score,
    guess: Score,
    broken: str | None,
    seconds: float,
    seed: int,
) -> _Row:
    metric = type(attack).metric
    values, controls = getattr(found.rows, metric), getattr(guess.rows, metric)
    clusters = cluster_sums(games, values, controls)
    point, low, high, kind = advantage_interval(torch.tensor(clusters), derive(seed, "bootstrap"))
    if found.false_proofs:
        broken = f"{found.false_proofs} rows it called proven are wrong" + (f"; {broken}" if broken else "")
    control = float(controls.mean().item())
    reason = "uninformative: the control alone reaches 0.99" if control >= UNINFORMATIVE else ""
    per_target = found.rows.f1.sort(descending=True).values
    finding = replace(
        blank,
        status=Status.BROKEN_ATTACK if broken else Status.OK,
        reason=broken or reason,
        targets=len(values),
        metric=metric,
        value=float(values.mean().item()),
        control=control,
        advantage=point,
        advantage_low=low,
        advantage_high=high,
        interval=kind,
        exact_rate=float(found.rows.exact_rate.mean().item()),
        matched_rate=found.matched_rate,
        cosine=float(found.rows.cosine.mean().item()),
        f1=float(found.rows.f1.mean().item()),
        auc=found.auc,
        relative_error=float(found.rows.relative_error.mean().item()),
        control_exact_rate=float(guess.rows.exact_rate.mean().item()),
        control_cosine=float(guess.rows.cosine.mean().item()),
        control_f1=float(guess.rows.f1.mean().item()),
        control_auc=guess.auc,
        identifiable_rate=found.identifiable_rate,
        seconds_attack=seconds,
        worst_decile=float(per_target[: max(1, len(per_target) // 10)].mean().item()),
    )
    return _Row(finding, clusters, breakdown(games, values))
