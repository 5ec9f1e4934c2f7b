"""Which audits a guarantee faces after its run, and what protects every field (rule 12)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from threadpoolctl import threadpool_limits

from fglaudit.context import Context
from fglaudit.empirical.adjacency import Statements
from fglaudit.empirical.audits.attempts import audits as statistical
from fglaudit.empirical.audits.attempts import raised
from fglaudit.empirical.audits.counts import epsilon_audits, releases_audit
from fglaudit.empirical.audits.drawn_clients import drawn_clients_audits
from fglaudit.empirical.audits.noise_first import noise_first
from fglaudit.empirical.fields.examined import Examined, examined, foreign_audit, sensitivity_audit
from fglaudit.empirical.fields.moves import PRESENCE
from fglaudit.empirical.fields.states import field_states, fields_audit, unreplayed_states
from fglaudit.empirical.label_responses import label_states
from fglaudit.empirical.replays.staging import Staged, clients_of, staged
from fglaudit.empirical.sealed.ciphertexts import ciphertext_audits
from fglaudit.empirical.unstated_changes import not_blamed
from fglaudit.empirical.verdict_word import verdict_of
from fglaudit.empirical.whole_training import whole_training_audit
from fglaudit.facts import Unstated
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import NOT_REPLAYED, Audit, AuditName, FieldState, Outcome, Verdict, Word, empty
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Guarantee
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.counted import Counted
from fglaudit.privacy.from_facts import account
from fglaudit.tracebacks import keep, kept

_SMALL = 2**22
"""Entries of the feature rows up to which threads cost more than they save."""


@dataclass(frozen=True)
class _Case:
    """What all audits of one run are about; ``sealed`` are the payloads that travelled sealed."""

    protocol: FederatedProtocol
    graph: FederatedGraph
    defense: Defense
    context: Context
    stated: Statements
    counted: Counted
    unstated: Sequence[Unstated]
    sealed: tuple[str, ...]
    seed: int
    device: torch.device

    @property
    def copies(self) -> list[str]:
        """What the promise leaves out: each holder's message is bounded by itself, and all move with a node."""
        left = self.stated.promise.unit == "client" and self.context.holders > 1
        return ["copies of its nodes at other clients"] if left else []


def judge(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    session: DefenseSession,
    counted: Counted,
    unstated: Sequence[Unstated],
    *,
    seed: int,
    device: torch.device,
    quick: bool = False,
    stated: Statements | None = None,
) -> tuple[Verdict, tuple[FieldState, ...]]:
    """Return the verdict on what ``session`` promised, after its run, and the state of every field.

    Args:
        counted: on the wire of the run.
        unstated: what the defense changed and no fact explains.
        quick: replay nothing; a guarantee is then claimed at most.
        stated: what the run was compared with; None: what ``session`` states now.
    """
    stated = Statements.by(session) if stated is None else stated
    sealed = tuple(protocol.sealed(graph, session))
    case = _Case(protocol, graph, defense, protocol.context(graph), stated, counted, unstated, sealed, seed, device)
    if not promised(stated.promise):
        return _unpromised(case, quick)
    accounted = account(case.context, stated.facts, stated.promise, counted)
    audits = _accounting_audits(case, accounted)
    if quick:
        verdict = verdict_of(stated.promise, accounted, audits, shortened=NOT_REPLAYED, left=case.copies)
        return verdict, unreplayed_states(counted, sealed, NOT_REPLAYED)
    try:
        seen = _examined(case, accounted)
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        why = f"the defense could not be replayed: {kept(error, 'replays of the defense')}"
        audits.append(Audit(AuditName.FIELDS, Outcome.UNTESTED, why))
        return verdict_of(stated.promise, accounted, audits, left=case.copies), unreplayed_states(counted, sealed, why)
    return _after_replays(case, accounted, audits, seen)


def _unpromised(case: _Case, quick: bool) -> tuple[Verdict, tuple[FieldState, ...]]:
    """Return :func:`judge` of a defense that promises nothing: whoever seals promises nothing else, and that is not
    believed unseen either."""
    why = "nothing is promised, and nothing was replayed"
    sealing = () if quick else _sealing_audits(case)
    return Verdict(Word.NONE, "nothing is promised"), unreplayed_states(case.counted, case.sealed, why, sealing)


def _accounting_audits(case: _Case, accounted: Accounted | str) -> list[Audit]:
    """Return the audits that compare what is stated with what was counted and accounted, without any replay."""
    promise = case.stated.promise
    return [
        _facts_audit(case.unstated),
        releases_audit(case.context, promise, accounted, case.counted),
        *epsilon_audits(promise, accounted),
        *drawn_clients_audits(case.protocol, case.context, promise, accounted),
    ]


def _examined(case: _Case, accounted: Accounted | str) -> Examined:
    with threadpool_limits(limits=_threads(case.graph), user_api="openmp"):
        return examined(
            case.protocol,
            case.graph,
            case.defense,
            case.context,
            case.stated,
            accounted,
            counted=case.counted,
            seed=case.seed,
            device=case.device,
        )


def _sealing_audits(case: _Case) -> tuple[Audit, ...]:
    if not case.sealed:
        return ()
    last: dict[str, int] = {}
    for sent in case.counted.sent:
        last[sent.payload] = max(last.get(sent.payload, 0), sent.first_round + sent.rounds - 1)
    return ciphertext_audits(
        case.protocol, case.graph, case.defense, case.context, seed=case.seed, device=case.device, last=last
    )


def _after_replays(
    case: _Case, accounted: Accounted | str, audits: list[Audit], seen: Examined
) -> tuple[Verdict, tuple[FieldState, ...]]:
    """Return :func:`judge` where the first rounds were replayed; ``audits`` are those of the accounting."""
    promise, counted, sealed = case.stated.promise, case.counted, case.sealed
    sealing = _sealing_audits(case)
    fields = fields_audit(seen, promise, sealed, counted)
    audits = [*audits, foreign_audit(seen, accounted), sensitivity_audit(seen), fields, *sealing]
    prepared: Staged | None = None
    if isinstance(accounted, Accounted):
        prepared, found = _replayed(case, accounted, seen)
        audits += found

    def noise_comes_first() -> bool:
        return prepared is not None and isinstance(accounted, Accounted) and _noise_first(case, prepared, accounted)

    audits = not_blamed(audits, case.unstated, case.stated.facts, noise_comes_first)
    left = case.copies + _uncovered(seen, promise, sealed)
    verdict = verdict_of(promise, accounted, audits, left=left, sealed=sealed)
    verdict = _weighed(verdict, case.graph.num_nodes)
    labels = label_states(
        case.protocol, case.graph, case.defense, case.context, counted, verdict, seed=case.seed, device=case.device
    )
    return verdict, (*field_states(seen, counted, accounted, promise, sealed, sealing), *labels)


def _weighed(verdict: Verdict, nodes: int) -> Verdict:
    """Return a ``verdict`` that says so where what was verified protects nobody in a graph of so many ``nodes``."""
    if verdict.word is not Word.VERIFIED or verdict.epsilon is None:
        return verdict
    why = empty(verdict.epsilon, verdict.delta or 0.0, nodes)
    return dataclasses.replace(verdict, reason=f"protects nobody: {why}; {verdict.reason}") if why else verdict


def promised(promise: Guarantee) -> bool:
    """Whether anything is promised that could be judged."""
    epsilons = promise.epsilon_claimed, promise.epsilon_accounted
    return bool(promise.unit or promise.key_custody or any(e is not None for e in epsilons))


def _facts_audit(unstated: Sequence[Unstated]) -> Audit:
    if not unstated:
        return Audit(AuditName.FACTS, Outcome.PASSED, "facts explain all that the defense changed")
    words = "; ".join(f"{change.target}: {change.why}" for change in unstated[:3])
    return Audit(AuditName.FACTS, Outcome.UNTESTED, f"what the defense does is not stated: {words}")


def _noise_first(case: _Case, prepared: Staged, accounted: Accounted) -> bool:
    """Whether what is not stated is done to noisy values alone; no where that cannot be told."""
    try:
        return noise_first(prepared, accounted.mechanisms, clients_of(case.protocol, case.graph), seed=case.seed)
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        keep(error, "replays of noise before the rest")
        return False


def _threads(graph: FederatedGraph) -> int | None:
    """Return how many threads replays may use; None: as many as there are."""
    return 1 if graph.x.numel() < _SMALL else None


def _replayed(case: _Case, accounted: Accounted, seen: Examined) -> tuple[Staged | None, list[Audit]]:
    """Return what is replayed, None where nothing can be, and what came of many replays and of whole trainings."""
    parts = case.protocol, case.graph, case.defense
    with threadpool_limits(limits=1, user_api="openmp"):  # on small tables threads cost many times what they save
        prepared: Staged | None = None
        try:
            prepared = staged(*parts, accounted, seed=case.seed, device=case.device)
        except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
            why = f"the defense could not be replayed: {kept(error, 'replays of the defense')}"
            found: tuple[Audit, ...] = (Audit(AuditName.TRADE_OFF, Outcome.UNTESTED, why),)
        else:
            shape = seen.trace.gradients()
            found = statistical(prepared, *parts, *case.stated, accounted, gradients=shape, seed=case.seed)
        return prepared, [*found, _whole(case, accounted)]


def _whole(case: _Case, accounted: Accounted) -> Audit:
    try:
        return whole_training_audit(
            case.protocol, case.graph, case.defense, accounted, seed=case.seed, device=case.device
        )
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        return raised(AuditName.WHOLE_TRAINING, error)


def _uncovered(seen: Examined, promise: Guarantee, sealed: Sequence[str]) -> list[str]:
    """Return what moves with a record and is not covered by the promise."""
    moved = [(payload, by_server, name, f"{name} of {payload}") for payload, by_server, name in seen.moved]
    left = [said for _, by_server, _, said in moved if promise.server_trusted and not by_server]
    if promise.seals_alone:
        left += [said for payload, _, name, said in moved if payload not in sealed or name == PRESENCE]
    return left + (["reported accuracies"] if seen.accuracy else [])
