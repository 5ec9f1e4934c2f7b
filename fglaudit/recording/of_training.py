"""A training on a graph at hand, recorded: its messages, what everybody knows, accuracies, what became of a guarantee.
The truth is returned apart, for the scorer alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fglaudit import registry
from fglaudit.context import Context
from fglaudit.doing import tell
from fglaudit.empirical.adjacency import Statements, promise_of
from fglaudit.empirical.fields.states import after_unstated
from fglaudit.empirical.judge import judge, promised
from fglaudit.federated.collapse import balanced_accuracy, collapsed
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit, AuditName, FieldState, Outcome, Verdict, Word
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Guarantee, Trained
from fglaudit.parties.base import ActiveChannel, Behaviour, Conduct
from fglaudit.plugins.audit_events import watched
from fglaudit.plugins.exit_guard import no_exit
from fglaudit.plugins.modules import files_run
from fglaudit.plugins.monkeypatch_guard import functions, refuse_altered
from fglaudit.recording.recording import Recording
from fglaudit.recording.trained_again import trained_again
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


@dataclass(frozen=True)
class Kept:
    """What is kept of a training, for observers.

    Attributes:
        messages: which; None: all.
        clients: whose own data; None: everybody's.
        fractions: of auxiliary rows that observers may have.
        folder: where messages are spooled (they can be larger than memory); None keeps them in memory.
    """

    messages: Keep | None = None
    clients: Collection[int] | None = None
    fractions: Collection[float] = ()
    folder: Path | None = None


@dataclass(frozen=True)
class _Trainee:
    """What is trained, on what and by which seed and key."""

    graph: FederatedGraph
    protocol: FederatedProtocol
    defense: Defense
    behaviour: Behaviour | None
    seed: int
    key: bytes
    device: torch.device

    def rng(self, purpose: str) -> torch.Generator:
        return derive(self.seed, purpose, key=self.key)


@dataclass(frozen=True)
class _Run:
    """A training that is over: what carried its messages, how the party behaved that breaks rules, what came of it."""

    session: DefenseSession
    wire: RecordingChannel
    conduct: Conduct
    trained: Trained
    seconds: float


@dataclass(frozen=True)
class _Judgement:
    guarantee: Guarantee
    verdict: Verdict
    fields: tuple[FieldState, ...]


@no_exit()
def record_training(
    graph: FederatedGraph,
    protocol: FederatedProtocol,
    defense: Defense,
    *,
    context: Context | None = None,
    seed: int = 0,
    keep: Kept | None = None,
    empirical: bool = False,
    device: torch.device | None = None,
    progress: Progress | None = None,
    channel: Callable[..., RecordingChannel] = RecordingChannel,
    key: bytes = b"",
    behaviour: Behaviour | None = None,
) -> tuple[Recording, GroundTruth]:
    """Train ``protocol`` under ``defense`` on a graph that is at hand, and record it.

    Args:
        context: what the protocol states of the graph, where it was asked already.
        keep: what is kept for observers; None: everything.
        empirical: whether replays audit what is promised; without them a guarantee is claimed at most.
        channel: makes what carries the messages; conformance tests tamper with them.
        behaviour: of a party that sends other messages than the protocol says; ``graph`` is what it claims already.
    """
    keep = keep or Kept()
    what = _Trainee(graph, protocol, defense, behaviour, seed, key, device or torch.device("cpu"))
    if context is None:
        protocol.check(graph)
        context = protocol.context(graph)
    files = files_run()
    before = functions() if files else {}
    with watched(protocol, defense) as seen:
        session, transcript = defense.bind(context), Transcript(keep.folder)
        wire = channel(session, graph.num_clients, what.rng("defense"), transcript, keep.messages or Keep(), progress)
        wire.states(context)
        run = _train(what, session, wire)
        judged = _judged(what, run, empirical)
        judged = dataclasses.replace(judged, verdict=_of_this_training(judged.verdict, what, run, context))
    if files:
        refuse_altered(before, files)
    judged = dataclasses.replace(judged, verdict=_of_plain_code(judged.verdict, seen))
    if behaviour is not None:
        verdict = _among_dishonest(judged.verdict, judged.guarantee, server_label(behaviour))
        judged = dataclasses.replace(judged, verdict=verdict)
    held = range(graph.num_clients) if keep.clients is None else keep.clients
    side = SideKnowledge.of(graph, held, keep.fractions, labelled_parties(protocol, graph), wire.inputs, seed)
    recording = _recording(what, run, judged, transcript, side)
    if empirical:
        recording = dataclasses.replace(recording, notes=(*recording.notes, *_out_of_reach(judged.verdict)))
    return recording, GroundTruth(graph, protocol, run.trained, seed, wire.unstated, wire.edges)


def _train(what: _Trainee, session: DefenseSession, wire: RecordingChannel) -> _Run:
    """Train over ``wire``, with the party in between that breaks the rules, if there is one."""
    behaviour = what.behaviour
    conduct = Conduct() if behaviour is None else behaviour.bind(what.protocol, what.graph, what.rng("behaviour"))
    carrier = wire if behaviour is None else ActiveChannel(wire, conduct)
    start = time.perf_counter()
    trained = what.protocol.train(what.graph, carrier, rng=what.rng("train"), device=what.device)
    return _Run(session, wire, conduct, trained, time.perf_counter() - start)


def _of_this_training(verdict: Verdict, what: _Trainee, run: _Run, context: Context) -> Verdict:
    """Return ``verdict``; claimed, where a protocol of another author trains otherwise when it is trained again."""
    if verdict.word is not Word.VERIFIED or registry.shipped("protocol", what.protocol) or what.behaviour is not None:
        return verdict
    parts = what.protocol, what.graph, what.defense, context
    audit = trained_again(*parts, run.trained, run.wire, what.rng, what.device)
    return verdict if audit is None else verdict.unverified(audit.detail, audit)


def _judged(what: _Trainee, run: _Run, empirical: bool) -> _Judgement:
    """Return what the session of ``run`` promised, the verdict on it, and what protects every field."""
    guarantee, wire = promise_of(run.session), run.wire
    if empirical and promised(guarantee):
        tell(f"auditing what {type(what.defense).name} promises")
    verdict, fields = judge(
        what.protocol,
        what.graph,
        what.defense,
        run.session,
        wire.counted,
        wire.unstated,
        seed=what.seed,
        device=what.device,
        quick=not empirical,
        stated=Statements(wire.facts, guarantee),
    )
    return _Judgement(guarantee, verdict, after_unstated(fields, wire.unstated, wire.counted))


def _recording(what: _Trainee, run: _Run, judged: _Judgement, transcript: Transcript, side: SideKnowledge) -> Recording:
    """Return what is kept of ``run``, apart from the truth."""
    graph, protocol, defense, trained = what.graph, what.protocol, what.defense, run.trained
    return Recording(
        description=_description(protocol, defense, what.seed),
        transcript=transcript,
        side=side,
        public=dataclasses.replace(_public_facts(protocol, defense, graph, run.session, trained), facts=run.wire.facts),
        columns={
            **_training_columns(protocol, graph, defense, what.behaviour, what.seed),
            **_cost_columns(trained, run.wire),
            "accuracy_balanced": balanced_accuracy(trained, graph),
            "seconds_train": run.seconds,
            "device": str(what.device),
        },
        guarantee=judged.guarantee,
        verdict=judged.verdict,
        fields=judged.fields,
        history=_history(trained, graph),
        partition={},
        notes=(
            *trained.notes,
            *filter(None, [protocol.large_messages(graph)]),
            *collapsed(protocol, trained, graph, type(defense).name),
            *run.conduct.remarks(trained),
        ),
    )


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
    return verdict.unverified(why, Audit(AuditName.CODE, Outcome.UNTESTED, why))


def _among_dishonest(verdict: Verdict, guarantee: Guarantee, behaviour: str) -> Verdict:
    """Return the verdict where a party breaks the rules: what rests on keys was audited among parties that do not."""
    why = f"it was audited among parties that follow the protocol; here one does not: {behaviour}"
    return verdict.unverified(why) if guarantee.key_custody else verdict


def _out_of_reach(verdict: Verdict) -> tuple[str, ...]:
    """Return what replays could not show of the accounted epsilon, as notes."""
    accounted, measured = verdict.epsilon, verdict.measured
    if accounted is None:
        return ()
    if measured is None:
        why = next(
            (audit.detail for audit in verdict.audits if audit.name is AuditName.TRADE_OFF), "nothing could be replayed"
        )
        return (f"the accounted epsilon was not tested: {why}",)
    if measured.ceiling >= accounted:
        return ()
    limit = f"{2 * measured.replays} replays show at most {measured.ceiling:.3g}"
    return (f"the empirical epsilon cannot reach the accounted {accounted:.4g}: {limit}",)
