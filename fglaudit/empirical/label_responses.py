"""Labels that a protocol itself sends by k-ary randomised response: their epsilon, composed with that of rows.

The epsilon comes from the chance to tell the truth that the protocol states (:class:`fglaudit.structure.Reports`) and
from how often a node answered on the wire. The statement is put to the test: the first rounds are replayed under many
generators, and answers are compared with the true labels. Lies must be as many as stated of every class and even, and
nodes must answer by themselves. Without the power to see an epsilon 1.5 times as large the epsilon is claimed. In a
replay to the end, answers are counted, and with other labels and the same answers nothing else that is sent may move.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from fglaudit.context import Context
from fglaudit.empirical.audits.class_reports import GENERATORS, alike, alone
from fglaudit.empirical.audits.noise_tests import Found
from fglaudit.empirical.audits.reports_together import law, shares, stated_law, two_sided
from fglaudit.empirical.fields.forced_replay import Held, Reach, Trace, replay
from fglaudit.empirical.fields.moves import moves
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, FieldState, Outcome, Protection, Verdict, Word
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.payloads import SERVER, ClassReports
from fglaudit.privacy.accounting import Relation, compose, epsilon_of, response_event
from fglaudit.privacy.counted import Counted
from fglaudit.rng import derive
from fglaudit.structure import Reports
from fglaudit.tracebacks import kept

LABELS = "labels"
"""The field of ``guarantees.csv`` that stands for the labels behind reports."""
ENOUGH_POWER = 0.9


def label_states(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    context: Context,
    counted: Counted,
    verdict: Verdict,
    *,
    seed: int,
    device: torch.device,
) -> tuple[FieldState, ...]:
    """Return what protects labels that are reported; nothing where the protocol reports none.

    Args:
        verdict: on the defense, whose epsilon for rows is composed with that of labels.
    """
    reports = protocol.structure(graph).get(Reports)
    if reports is None or reports.of != "label":
        return ()
    name = ClassReports.__name__
    if reports.keep >= 1:
        return (FieldState("server", name, LABELS, Protection.NOTHING, "labels are sent as they are"),)
    parts = protocol, graph, defense, context
    times = max(1, counted.of(name, by_server=False).repeats)
    try:
        answered, beside = _to_the_end(*parts, seed=seed, device=device)
        times = max(times, answered)
        audit = beside or response_audit(*parts, reports, times=times, seed=seed, device=device)
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        why = f"could not be replayed: {kept(error, 'replays of label responses')}"
        audit = Audit(AuditName.LABEL_RESPONSES, Outcome.UNTESTED, why)
    event = compose(response_event(reports.keep, reports.classes), times)
    epsilon = epsilon_of(event, 0.0, Relation.REPLACE)
    word = {Outcome.PASSED: Word.VERIFIED, Outcome.REFUTED: Word.REFUTED}.get(audit.outcome, Word.CLAIMED)
    words = f"epsilon {epsilon:.4g} of a label, {times} k-ary response{'s' * (times > 1)} ({word}: {audit.detail})"
    if verdict.epsilon is not None and verdict.unit == "node" and verdict.word is not Word.REFUTED:
        both = Word.VERIFIED if (word, verdict.word) == (Word.VERIFIED, Word.VERIFIED) else Word.CLAIMED
        words += f"; epsilon {epsilon + verdict.epsilon:.4g} of a node's row and label together ({both})"
    # What was not put to the test must not make the whole "private".
    found = {Outcome.PASSED: Protection.COVERED, Outcome.REFUTED: Protection.NOTHING}
    state = found.get(audit.outcome, Protection.UNEXAMINED)
    return (FieldState("server", name, LABELS, state, words),)


def _to_the_end(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    context: Context,
    *,
    seed: int,
    device: torch.device,
) -> tuple[int, Audit | None]:
    """Return how often a node answered in a whole training, at most, and what tells of labels beside the answers."""
    held, reach = Held(payloads=frozenset({(ClassReports.__name__, False)})), Reach().to_the_end()

    def again(world: FederatedGraph, forced: Trace | None = None) -> Trace:
        return replay(
            protocol, world, defense, context, seed=seed, device=device, forced=forced, held=held, reach=reach
        )

    one, same = again(graph), again(graph)
    named = [payload.nodes.cpu() for payload in _answers(one)]
    answered = int(torch.unique(torch.cat(named), return_counts=True)[1].max()) if sum(map(len, named)) else 0
    y = graph.y.clone()
    y[::2] = torch.where(y[::2] >= 0, (y[::2] + 1) % graph.num_classes, y[::2])  # of all, counts could stay the same
    other = again(dataclasses.replace(graph, y=y), one)
    moved = moves(one, other).fields - moves(one, same).fields
    beside = sorted(
        f"{field} of {payload} from {'the server' if by_server else 'clients'}"
        for payload, by_server, field in moved
        if (payload, by_server, field) != (ClassReports.__name__, False, "values")
    )
    if not beside:
        return answered, None
    why = f"{', '.join(beside)} moves with labels, though their answers are the same"
    return answered, Audit(AuditName.LABEL_RESPONSES, Outcome.REFUTED, why)


def _answers(trace: Trace) -> list[ClassReports]:
    """Return the answers that clients sent, message by message."""
    sent = [batch for batch in trace.batches if not bool((batch.senders == SERVER).all())]
    return [batch.payload for batch in sent if isinstance(batch.payload, ClassReports)]


def response_audit(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    context: Context,
    reports: Reports,
    *,
    seed: int,
    device: torch.device,
    times: int = 1,
) -> Audit:
    """Return whether labels are answered as stated: refuted with probability 1e-5 where they are.

    Args:
        times: how often a node answers.
    """
    seeds = torch.randint(2**31, (GENERATORS,), generator=derive(seed, "label responses")).tolist()
    answers: list[Tensor] = []
    true, message = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
    for each in [*seeds, seeds[0]]:
        trace = replay(protocol, graph, defense, context, seed=each, device=device)
        sent = _answers(trace)
        batches = [batch for batch in trace.batches if any(batch.payload is payload for payload in sent)]
        if not sent or any(not torch.equal(one.nodes, sent[0].nodes) for one in sent):
            return Audit(
                AuditName.LABEL_RESPONSES, Outcome.UNTESTED, "the first rounds have no one report of every node"
            )
        true, message = graph.y[sent[0].nodes.cpu()].flatten(), batches[0].entry_messages()
        answers.append(torch.stack([one.values.cpu().argmax(1) for one in sent]))
    if any(each.shape != answers[0].shape for each in answers) or not torch.equal(answers.pop(), answers[0]):
        return Audit(
            AuditName.LABEL_RESPONSES, Outcome.UNTESTED, "equal generators gave different answers: foreign randomness"
        )
    level = REFUTED_AT / len(answers[0])
    for said in torch.stack(answers, 1):
        audit = _answered(said, true, message, reports, level)
        if audit.outcome is not Outcome.PASSED:
            return audit
    if times > 1:
        why = f"a label is answered {times} times, and whether its answers are independent is not tested"
        return Audit(AuditName.LABEL_RESPONSES, Outcome.UNTESTED, why)
    return audit


def _answered(said: Tensor, true: Tensor, message: Tensor, reports: Reports, level: float) -> Audit:
    """Return whether ``said`` [generators, nodes] are answers as stated to the labels ``true``, refuted at ``level``.

    Args:
        message: in which each of them was sent.
    """
    keep = reports.keep
    truths, draws = int((said == true).sum()), said.numel()
    all_ = Found(float(two_sided(np.array([truths]), draws, keep)[0]), f"{truths} of {draws} answers are true")
    found = [all_, *law(said, true, stated_law(keep, reports.classes), ""), *shares(said, true, message, keep)]
    found += [*alone(said != true, 1 - keep), *alike(said, keep, reports.classes)]
    worst = min(found, key=lambda each: each.p)
    p = min(1.0, len(found) * worst.p)
    if p <= level:
        return Audit(AuditName.LABEL_RESPONSES, Outcome.REFUTED, f"{worst.words} (p {p:.2g})", p)
    power = _power(reports, draws, level / len(found))
    if power < ENOUGH_POWER:
        why = f"an epsilon 1.5 times as large would have been seen with probability {power:.2f} alone"
        return Audit(AuditName.LABEL_RESPONSES, Outcome.UNTESTED, why, p, power)
    words = f"{len(true)} labels under {GENERATORS} generators are answered as stated"
    return Audit(AuditName.LABEL_RESPONSES, Outcome.PASSED, words, p, power)


def _power(reports: Reports, draws: int, level: float) -> float:
    """Return with what probability answers at 1.5 times the epsilon stated are too often true for ``level``."""
    others = reports.classes - 1
    bolder = 1 / (1 + others * (others * reports.keep / (1 - reports.keep)) ** -1.5)
    least = binom.isf(level / 2, draws, reports.keep)
    return float(binom.sf(least, draws, bolder))
