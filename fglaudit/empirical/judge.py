"""Which audits a guarantee faces after its run, and what protects every field (rule 12)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from threadpoolctl import threadpool_limits

from fglaudit.empirical.adjacency import promise_of
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
from fglaudit.empirical.verdict_word import TRADE_OFF, verdict_of
from fglaudit.empirical.whole_training import NAME as WHOLE
from fglaudit.empirical.whole_training import whole_training_audit
from fglaudit.facts import Additive, Fact, Field, Unstated, rebuilt
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.guarantees import NOT_REPLAYED, Audit, FieldState, Outcome, Verdict, Word, empty
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Guarantee
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.counted import Counted
from fglaudit.privacy.from_facts import account
from fglaudit.tracebacks import keep, kept

_OF_FACTS = ("sensitivity", "reach", "noise", "dependence")
"""Audits that compare what left with the facts, and not what can be told of a record with the guarantee."""
_MERGED = "other than stated, which does not say that less is hidden"
"""Different values left as the same one, so more was done than is stated, maybe to values that noise hides already."""
_AFTERWARDS = "the noise is as stated, and what is done to noisy values is not stated, which hides no less"
_SMALL = 2**22
"""Entries of the feature rows up to which threads cost more than they save."""


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
    facts: Sequence[Fact] | None = None,
    promise: Guarantee | None = None,
) -> tuple[Verdict, tuple[FieldState, ...]]:
    """Return the verdict on what ``session`` promised, after its run, and the state of every field.

    Args:
        counted: on the wire of the run.
        unstated: what the defense changed and no fact explains.
        quick: replay nothing; a guarantee is then claimed at most.
        facts, promise: that the run was compared with, since a session may state others once it is over; None: what
            ``session`` states now.
    """
    facts = rebuilt(session.facts()) if facts is None else facts
    promise, context = promise or promise_of(session), protocol.context(graph)
    sealed = protocol.sealed(graph, session)

    def seals() -> tuple[Audit, ...]:
        if quick or not sealed:
            return ()
        return ciphertext_audits(protocol, graph, defense, context, seed=seed, device=device)

    if not promised(promise):  # whoever seals promises nothing else, and that is not believed unseen either
        why = "nothing is promised, and nothing was replayed"
        return Verdict(Word.NONE, "nothing is promised"), unreplayed_states(counted, sealed, why, seals())
    accounted = account(context, facts, promise, counted)
    audits = [
        _facts_audit(unstated),
        releases_audit(context, promise, accounted, counted),
        *epsilon_audits(promise, accounted),
        *drawn_clients_audits(protocol, context, promise, accounted),
    ]
    # Each holder's message is bounded by itself, and all of them move with a node.
    copies = ["copies of its nodes at other clients"] if promise.unit == "client" and context.holders > 1 else []
    if quick:
        verdict = verdict_of(promise, accounted, audits, shortened=NOT_REPLAYED, left=copies)
        return verdict, unreplayed_states(counted, sealed, NOT_REPLAYED)
    try:
        with threadpool_limits(limits=_threads(graph), user_api="openmp"):
            seen = examined(
                protocol,
                graph,
                defense,
                context,
                facts,
                promise,
                accounted,
                counted=counted,
                seed=seed,
                device=device,
            )
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        why = f"the defense could not be replayed: {kept(error, 'replays of the defense')}"
        audits.append(Audit("fields", Outcome.UNTESTED, why))
        return verdict_of(promise, accounted, audits, left=copies), unreplayed_states(counted, sealed, why)
    sealing = seals()
    fields = fields_audit(seen, promise, sealed, counted)
    audits += [foreign_audit(seen, accounted), sensitivity_audit(seen), fields, *sealing]
    prepared: Staged | None = None
    if isinstance(accounted, Accounted):
        prepared, found = _replayed(protocol, graph, defense, facts, promise, accounted, seed=seed, device=device)
        audits += found

    def noise_comes_first() -> bool:
        if prepared is None or not isinstance(accounted, Accounted):
            return False
        return _noise_first(prepared, accounted, clients_of(protocol, graph), seed)

    audits = _not_blamed(audits, unstated, facts, noise_comes_first)
    left = copies + _uncovered(seen, promise, sealed)
    verdict = _weighed(verdict_of(promise, accounted, audits, left=left, sealed=sealed), graph.num_nodes)
    labels = label_states(protocol, graph, defense, context, counted, verdict, seed=seed, device=device)
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
        return Audit("facts", Outcome.PASSED, "facts explain all that the defense changed")
    words = "; ".join(f"{change.target}: {change.why}" for change in unstated[:3])
    return Audit("facts", Outcome.UNTESTED, f"what the defense does is not stated: {words}")


def _not_blamed(
    audits: list[Audit], unstated: Sequence[Unstated], facts: Sequence[Fact], noise_comes_first: Callable[[], bool]
) -> list[Audit]:
    """Return ``audits`` without the refutations that only say that more is done than facts state, where that hides no
    less: values are merged, or noisy ones are changed.

    Args:
        noise_comes_first: whether what is not stated is done to noisy values alone; asked where it matters, as it takes
            replays.
    """
    if any(change.merges for change in unstated):
        return [_against_facts_alone(audit, _MERGED) for audit in audits]
    excused = [_against_facts_alone(audit, _AFTERWARDS) for audit in audits]
    after_noise = bool(unstated) and all(_has_noise(change, facts) for change in unstated)
    if excused == audits or not after_noise or not noise_comes_first():
        return audits
    first = dataclasses.replace(excused[0], detail=f"{_AFTERWARDS}: say in a fact what that is; {excused[0].detail}")
    return [first, *excused[1:]]


def _against_facts_alone(audit: Audit, why: str) -> Audit:
    """Return an audit that compares with what is stated as untested, if it refutes, and say ``why``."""
    if audit.outcome is not Outcome.REFUTED or audit.name not in _OF_FACTS:
        return audit
    return dataclasses.replace(audit, outcome=Outcome.UNTESTED, detail=f"{why}: {audit.detail}")


def _has_noise(change: Unstated, facts: Sequence[Fact]) -> bool:
    """Whether noise is stated on what was changed: what is done elsewhere is not done to noisy values."""
    noisy = [fact.target for fact in facts if isinstance(fact, Additive)]
    target = change.target
    if not isinstance(target, Field):
        return target in noisy
    return any(isinstance(n, Field) and n.meets(target.payload, target.name, target.direction) for n in noisy)


def _noise_first(prepared: Staged, accounted: Accounted, clients: Sequence[ClientGraph], seed: int) -> bool:
    """Whether what is not stated is done to noisy values alone; no where that cannot be told."""
    try:
        return noise_first(prepared, accounted.mechanisms, clients, seed=seed)
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        keep(error, "replays of noise before the rest")
        return False


def _threads(graph: FederatedGraph) -> int | None:
    """Return how many threads replays may use; None: as many as there are."""
    return 1 if graph.x.numel() < _SMALL else None


def _replayed(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    facts: Sequence[Fact],
    promise: Guarantee,
    accounted: Accounted,
    *,
    seed: int,
    device: torch.device,
) -> tuple[Staged | None, list[Audit]]:
    """Return what is replayed, None where nothing can be, and what came of many replays and of whole trainings."""
    with threadpool_limits(limits=1, user_api="openmp"):  # on small tables threads cost many times what they save
        prepared: Staged | None = None
        try:
            prepared = staged(protocol, graph, defense, accounted, seed=seed, device=device)
        except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
            why = f"the defense could not be replayed: {kept(error, 'replays of the defense')}"
            found: tuple[Audit, ...] = (Audit(TRADE_OFF, Outcome.UNTESTED, why),)
        else:
            found = statistical(prepared, protocol, graph, defense, facts, promise, accounted, seed=seed)
        return prepared, [*found, _whole(protocol, graph, defense, accounted, seed, device)]


def _whole(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    accounted: Accounted,
    seed: int,
    device: torch.device,
) -> Audit:
    try:
        return whole_training_audit(protocol, graph, defense, accounted, seed=seed, device=device)
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        return raised(WHOLE, error)


def _uncovered(seen: Examined, promise: Guarantee, sealed: Sequence[str]) -> list[str]:
    """Return what moves with a record and is not covered by the promise."""
    moved = [(payload, by_server, name, f"{name} of {payload}") for payload, by_server, name in seen.moved]
    left = [said for _, by_server, _, said in moved if promise.server_trusted and not by_server]
    if promise.seals_alone:
        left += [said for payload, _, name, said in moved if payload not in sealed or name == PRESENCE]
    return left + (["reported accuracies"] if seen.accuracy else [])
