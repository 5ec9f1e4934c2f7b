"""A training on a graph at hand, recorded: its messages, what everybody knows, accuracies, what became of a guarantee.
The truth is returned apart, for the scorer alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from fglaudit import registry
from fglaudit.context import Context
from fglaudit.empirical.adjacency import promise_of
from fglaudit.empirical.fields.states import after_unstated
from fglaudit.empirical.judge import judge
from fglaudit.empirical.verdict_word import TRADE_OFF
from fglaudit.federated.collapse import balanced_accuracy, collapsed
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit, FieldState, Outcome, Verdict, Word
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Guarantee, Trained
from fglaudit.parties.base import ActiveChannel, Behaviour, Conduct
from fglaudit.plugins.modules import files_run
from fglaudit.plugins.staying import staying
from fglaudit.plugins.unaltered import functions, refuse_altered
from fglaudit.plugins.watched import watched
from fglaudit.recording.recording import Recording
from fglaudit.rng import derive
from fglaudit.scoring.truth import GroundTruth
from fglaudit.suite.cell import arguments, describe, server_label
from fglaudit.view import PublicFacts
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.rehearsal import hooks_of, rehearsal
from fglaudit.wire.side_knowledge import SideKnowledge, labelled_parties
from fglaudit.wire.transcript import Transcript

Progress = Callable[[int, int], None]
"""Called with (round, rounds) during training."""


@staying()
def record_training(
    graph: FederatedGraph,
    protocol: FederatedProtocol,
    defense: Defense,
    *,
    context: Context | None = None,
    seed: int = 0,
    keep: Keep | None = None,
    clients: Collection[int] | None = None,
    fractions: Collection[float] = (),
    empirical: bool = False,
    device: torch.device | None = None,
    progress: Progress | None = None,
    folder: Path | None = None,
    channel: Callable[..., RecordingChannel] = RecordingChannel,
    key: bytes = b"",
    behaviour: Behaviour | None = None,
) -> tuple[Recording, GroundTruth]:
    """Train ``protocol`` under ``defense`` on a graph that is at hand, and record it.

    Args:
        context: what the protocol states of the graph, where it was asked already.
        keep: which messages are kept; None: all.
        clients: whose own data is kept for views; None: everybody's.
        fractions: of auxiliary rows that observers may have.
        empirical: whether replays audit what is promised; without them a guarantee is claimed at most.
        channel: makes what carries the messages; conformance tests tamper with them.
        behaviour: of a party that sends other messages than the protocol says; ``graph`` is what it claims already.
    """
    device = device or torch.device("cpu")
    if context is None:
        protocol.check(graph)
        context = protocol.context(graph)
    files = files_run()
    before = functions() if files else {}
    with watched(protocol, defense) as seen:
        session = defense.bind(context)
        transcript = Transcript(folder)
        wire = channel(
            session, graph.num_clients, derive(seed, "defense", key=key), transcript, keep or Keep(), progress
        )
        wire.states(context)
        conduct = (
            Conduct() if behaviour is None else behaviour.bind(protocol, graph, derive(seed, "behaviour", key=key))
        )
        carrier = wire if behaviour is None else ActiveChannel(wire, conduct)
        start = time.perf_counter()
        trained = protocol.train(graph, carrier, rng=derive(seed, "train", key=key), device=device)
        seconds = time.perf_counter() - start
        guarantee = promise_of(session)
        verdict, fields = _judged(
            protocol, graph, defense, session, guarantee, wire, seed=seed, device=device, empirical=empirical
        )
    if files:
        refuse_altered(before, files)
    verdict = _of_plain_code(verdict, seen)
    if behaviour is not None:
        verdict = _among_dishonest(verdict, guarantee, server_label(behaviour))
    held = range(graph.num_clients) if clients is None else clients
    recording = Recording(
        description=_description(protocol, defense, seed),
        transcript=transcript,
        side=SideKnowledge.of(graph, held, fractions, labelled_parties(protocol, graph), wire.inputs, seed),
        public=dataclasses.replace(_public_facts(protocol, defense, graph, session, trained), facts=wire.facts),
        columns={
            **_training_columns(protocol, graph, defense, behaviour, seed),
            **_cost_columns(trained, wire),
            "accuracy_balanced": balanced_accuracy(trained, graph),
            "seconds_train": seconds,
            "device": str(device),
        },
        guarantee=guarantee,
        verdict=verdict,
        fields=fields,
        history=_history(trained, graph),
        partition={},
        notes=(
            *trained.notes,
            *collapsed(protocol, trained, graph, type(defense).name),
            *conduct.remarks(trained),
            *(_out_of_reach(verdict) if empirical else ()),
        ),
    )
    return recording, GroundTruth(graph, protocol, trained, seed, wire.unstated, wire.edges)


def _judged(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    session: DefenseSession,
    guarantee: Guarantee,
    wire: RecordingChannel,
    *,
    seed: int,
    device: torch.device,
    empirical: bool,
) -> tuple[Verdict, tuple[FieldState, ...]]:
    """Return the verdict on what ``guarantee`` promised of the training that ``wire`` carried, and what protects every
    field."""
    verdict, fields = judge(
        protocol,
        graph,
        defense,
        session,
        wire.counted,
        wire.unstated,
        seed=seed,
        device=device,
        quick=not empirical,
        facts=wire.facts,
        promise=guarantee,
    )
    return verdict, after_unstated(fields, wire.unstated, wire.counted)


def _description(protocol: FederatedProtocol, defense: Defense, seed: int) -> dict[str, Any]:
    """Return the training as plain JSON, from which protocol and defense are built again."""
    return {
        "protocol": describe(protocol),
        "protocol_class": registry.reference(protocol),
        "defense": describe(defense),
        "defense_class": registry.reference(defense),
        "seed": seed,
    }


def _training_columns(
    protocol: FederatedProtocol, graph: FederatedGraph, defense: Defense, behaviour: Behaviour | None, seed: int
) -> dict[str, Any]:
    """Return the columns of ``findings.csv`` that say what was trained; a suite adds its cell and partition."""
    return {
        "cell": "",
        "dataset": graph.name,
        "partition": "",
        "clients": graph.num_clients,
        "protocol": type(protocol).name,
        "protocol_args": arguments(protocol),
        "server": server_label(behaviour),
        "defense": type(defense).name,
        "defense_args": arguments(defense),
        "seed": seed,
    }


def _cost_columns(trained: Trained, wire: RecordingChannel) -> dict[str, Any]:
    """Return the columns of ``findings.csv`` that say how accurate it became, and for how many bytes."""
    return {
        "accuracy": trained.client_mean,
        "accuracy_global": trained.whole_test_set,
        "bytes_up": int(wire.bytes_up.sum().item()),
        "bytes_down": int(wire.bytes_down.sum().item()),
        "ciphertext_bytes": wire.bytes_sealed or None,
    }


def _history(trained: Trained, graph: FederatedGraph) -> dict[str, list[float]]:
    """Return accuracies and the protocol's own series, by round, and which test places were right."""
    return {
        "accuracy": [float(v) for v in trained.accuracy.nanmean(1).tolist()],
        "accuracy_global": [float(v) for v in trained.accuracy_global.tolist()],
        **{name: [float(v) for v in values.tolist()] for name, values in trained.series.items()},
        **_right_by_node(trained, graph),
    }


def _public_facts(
    protocol: FederatedProtocol, defense: Defense, graph: FederatedGraph, session: DefenseSession, trained: Trained
) -> PublicFacts:
    """Return what everybody knows about a run."""
    return PublicFacts(
        protocol=type(protocol).name,
        hyperparameters=describe(protocol),
        defense=type(defense).name,
        defense_parameters=describe(defense),
        **graph.schema(),
        layout=trained.layout,
        facts=session.facts(),
        sealed=protocol.sealed(graph, session),
        structure=protocol.stated(graph),
        hooks=hooks_of(session),
        **rehearsal(protocol, defense),
    )


def _right_by_node(trained: Trained, graph: FederatedGraph) -> dict[str, list[float]]:
    """Return under ``right`` which test places were classified correctly, 1 or 0, by node id, then by client: the same
    place in every training on the same split. Nothing where the protocol does not say."""
    if trained.right is None:
        return {}
    places = [mask.long() if mask.dim() == 1 else mask.sum(1) for mask in graph.test]
    nodes = torch.cat([ids.repeat_interleave(times) for ids, times in zip(graph.clients, places, strict=True)])
    order = torch.argsort(nodes, stable=True)
    return {"right": trained.right.long()[order].tolist()}


def _of_plain_code(verdict: Verdict, seen: list[str]) -> Verdict:
    """Return the verdict where a plugin asked the interpreter for what tells an audit from a run, or kept something
    where no copy of it goes: what it does when nobody looks is then not known."""
    if not seen:
        return verdict
    why = f"a plugin {'; a plugin '.join(seen[:3])}, so what it does when nobody looks is not known"
    audits = (*verdict.audits, Audit("code", Outcome.UNTESTED, why))
    if verdict.word is Word.VERIFIED:
        return dataclasses.replace(verdict, word=Word.CLAIMED, reason=why, audits=audits)
    return dataclasses.replace(verdict, audits=audits)


def _among_dishonest(verdict: Verdict, guarantee: Guarantee, behaviour: str) -> Verdict:
    """Return the verdict where a party breaks the rules: what rests on keys was audited among parties that do not."""
    if verdict.word is not Word.VERIFIED or not guarantee.key_custody:
        return verdict
    why = f"it was audited among parties that follow the protocol; here one does not: {behaviour}"
    return dataclasses.replace(verdict, word=Word.CLAIMED, reason=why)


def _out_of_reach(verdict: Verdict) -> tuple[str, ...]:
    """Return what replays could not show of the accounted epsilon, as notes."""
    accounted, measured = verdict.epsilon, verdict.measured
    if accounted is None:
        return ()
    if measured is None:
        why = next((audit.detail for audit in verdict.audits if audit.name == TRADE_OFF), "nothing could be replayed")
        return (f"the accounted epsilon was not tested: {why}",)
    if measured.ceiling >= accounted:
        return ()
    limit = f"{2 * measured.replays} replays show at most {measured.ceiling:.3g}"
    return (f"the empirical epsilon cannot reach the accounted {accounted:.4g}: {limit}",)
