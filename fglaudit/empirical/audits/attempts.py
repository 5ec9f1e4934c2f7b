"""All attempts to refute an account by replaying the defense's own hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fglaudit.context import Examples
from fglaudit.empirical.audits.class_reports import class_reports_audits
from fglaudit.empirical.audits.dependence import noise_audits
from fglaudit.empirical.audits.distinguisher import distinguisher_audit
from fglaudit.empirical.audits.noiseless_fields import noiseless_fields_audit
from fglaudit.empirical.audits.own_clip import own_clip_audit
from fglaudit.empirical.audits.own_sample import own_sample_audit
from fglaudit.empirical.audits.planted_rows import planted_rows_audit
from fglaudit.empirical.audits.reached_losses import reached_losses
from fglaudit.empirical.audits.reports_test import reports_audits
from fglaudit.empirical.audits.sampling import sampling_audit
from fglaudit.empirical.audits.shared_draws import without_shared_draws
from fglaudit.empirical.audits.shares import shares_audit
from fglaudit.empirical.audits.trade_off import ENOUGH, trade_off_audit
from fglaudit.empirical.fields.steps import after_noise
from fglaudit.empirical.replays.captured_stage import CapturedStage
from fglaudit.empirical.replays.local_stages import UpdateStage
from fglaudit.empirical.replays.scores import farthest, stage_sampled
from fglaudit.empirical.replays.staging import Staged, clients_of
from fglaudit.facts import Fact, rebuilt
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.interfaces import Defense, FederatedProtocol, Guarantee
from fglaudit.privacy.accounted import Accounted
from fglaudit.rng import derive
from fglaudit.tracebacks import kept

SLACK = 1e-3
"""Relative error of distances in single precision."""


def audits(
    prepared: Staged,
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    facts: Sequence[Fact],
    promise: Guarantee,
    accounted: Accounted,
    *,
    gradients: tuple[int, int, int] | None = None,
    seed: int,
) -> tuple[Audit, ...]:
    """Return what came of every attempt to refute ``accounted``.

    The defense is bound afresh for every replay, and must then state the same facts as in the training. Each audit
    refutes an honest defense with probability 1e-5 at most, whatever number of tests it is made of.

    Args:
        prepared: what is replayed, of ``defense`` on ``graph``.
        facts, promise: what was stated in the training, of a session that was bound to the protocol's context on this
            graph.
        accounted: what this tool accounted of it.
        gradients: their shape [E, K, D] in one step of the training, if it was seen.
    """
    if [repr(fact) for fact in rebuilt(prepared.facts)] != [repr(fact) for fact in facts]:
        return (
            Audit(
                AuditName.FACTS, Outcome.UNTESTED, "a fresh binding states other facts than the one that was trained"
            ),
        )
    clients = clients_of(protocol, graph)

    def independent(attempt: Callable[[Staged], Audit | None]) -> Audit | None:
        return without_shared_draws(attempt, prepared, seed)

    attempts: list[tuple[AuditName, Callable[[], Audit | tuple[Audit, ...] | None]]] = [
        (AuditName.TRADE_OFF, lambda: independent(lambda staged: trade_off_audit(staged, accounted, seed=seed))),
        (AuditName.REACH, lambda: _reach(prepared, protocol.examples(graph), clients, seed)),
        (
            AuditName.NOISE,
            lambda: noise_audits(prepared, defense, protocol.context(graph), accounted.mechanisms, clients, seed=seed),
        ),
        (AuditName.REPORTS, lambda: reports_audits(prepared, clients, seed=seed)),
        (AuditName.REPORTS, lambda: class_reports_audits(prepared, seed=seed)),
        (
            AuditName.SHARES,
            lambda: independent(
                lambda staged: shares_audit(staged, promise, protocol.context(graph).uploads, seed=seed)
            ),
        ),
        (AuditName.FIELDS, lambda: noiseless_fields_audit(prepared, seed=seed)),
        (AuditName.CLIP, lambda: own_clip_audit(prepared, seed=seed)),
        (AuditName.SAMPLING, lambda: sampling_audit(prepared, seed=seed)),
        (AuditName.SAMPLING, lambda: own_sample_audit(prepared, clients, gradients, seed=seed)),
        (
            AuditName.DISTINGUISHER,
            lambda: independent(lambda staged: distinguisher_audit(staged, accounted, seed=seed)),
        ),
        (AuditName.PLANTED_ROWS, lambda: independent(lambda staged: planted_rows_audit(staged, seed=seed))),
    ]
    found: list[Audit] = []
    for name, attempt in attempts:
        try:
            made = attempt()
        except Exception as error:  # as above
            made = raised(name, error)
        if made is not None:
            found += made if isinstance(made, tuple) else [made]
    return tuple(_with_noise_power(found, prepared))


def raised(name: AuditName, error: Exception) -> Audit:
    """Return that the audit ``name`` ended with ``error``: whatever it looks for, a defense that raises there is not
    verified."""
    why = kept(error, f"the audit '{name}'")
    return Audit(AuditName.REPLAYS, Outcome.UNTESTED, f"{name} could not be run: {why}")


def _with_noise_power(found: list[Audit], prepared: Staged) -> list[Audit]:
    """Return the audits; where losses are sampled, with the power that the audit of the noise has: samples hide how
    small it is in what one record moves, not in the noise itself."""
    sampled = any(stage_sampled(stage) for stages in prepared.stages.values() for stage in stages)
    noise = next((audit for audit in found if audit.name is AuditName.NOISE and audit.outcome is Outcome.PASSED), None)
    if not sampled or noise is None or (noise.power or 0.0) < ENOUGH:
        return found
    return [
        replace(audit, outcome=Outcome.PASSED, power=noise.power)
        if audit.name is AuditName.TRADE_OFF and audit.outcome is Outcome.UNTESTED and not prepared.left_out
        else audit
        for audit in found
    ]


def _reach(prepared: Staged, examples: Examples | str, clients: list[ClientGraph], seed: int) -> Audit | None:
    """Return whether a canary moved what is released, or a node reaches more losses, than the account allows."""
    too_far: list[str] = []
    seen: list[str] = []
    for stage in (stage for stages in prepared.stages.values() for stage in stages):
        allowed = stage.noise.sensitivity
        found: list[tuple[float, float, str]] = []
        if isinstance(stage, CapturedStage):
            found.append((stage.farthest, allowed, f"{stage.record} moved {stage.noise.payload} by"))
        elif (moved := farthest(stage, seed)) is not None:
            scaled = after_noise(prepared.facts, stage.noise) or 1.0  # which moves and noise are alike
            found.append((moved, allowed * scaled, f"a canary moved one release of {stage.name} by"))
        if isinstance(stage, UpdateStage) and not isinstance(examples, str) and not examples.across:
            session, rng = prepared.fresh(), derive(seed, "audits", "edges")
            reached = max(reached_losses(session.prepare(client, rng), examples.hops) for client in clients)
            found.append((float(reached), float(stage.losses), "losses that a node reaches:"))
        for distance, most, words in found:
            seen.append(f"{words} {distance:.4g}, {most:.4g} are accounted")
            too_far += [seen[-1]] if distance > most * (1 + SLACK) else []
    if not seen:
        return None
    return Audit(AuditName.REACH, Outcome.REFUTED if too_far else Outcome.PASSED, "; ".join(too_far or seen))
