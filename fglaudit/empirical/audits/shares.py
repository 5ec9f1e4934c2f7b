"""Is a sum's noise enough without the shares of those who tell them? Clients that add shares of the noise may collude
with whoever sees the sum alone (secure aggregation): they take off what they added, and the others' shares must do.

Accounted from facts: the noise of one message, the largest weight in the mean, the messages of a round, of which those
of clients that vanish are missing as those of colluders are. Replayed: all
releases of sums of messages, less those of the colluders; one of the other clients moved by more than the clip, or not.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.context import Uploads
from fglaudit.empirical.audits.trade_off import ENOUGH, replayed
from fglaudit.empirical.estimates.curve_test import Curve
from fglaudit.empirical.replays.message_stage import MessageStage
from fglaudit.empirical.replays.stages import stated_curve
from fglaudit.empirical.replays.staging import Staged
from fglaudit.facts import Absent
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.interfaces import Guarantee
from fglaudit.privacy.accounting import epsilon_of_mu
from fglaudit.rng import derive

SLACK = 1e-3
"""Relative error of an epsilon that is found by search."""


@dataclass(frozen=True, kw_only=True)
class SumStage(MessageStage):
    """Sums of the messages of all clients but the first ``colluding``; the last client's is the one that is given."""

    colluding: int

    @property
    def numbers(self) -> int:
        return self.clients * super().numbers

    def side_by_side(self, given: Tensor, copies: int, rng: torch.Generator) -> Tensor:
        values = given.new_zeros(copies, self.clients, len(given))
        values[:, -1] = given
        seen = super().side_by_side(values.flatten(0, 1), copies * self.clients, rng)
        return seen.view(copies, self.clients, *seen.shape[1:])[:, self.colluding :].sum(1)


def shares_audit(prepared: Staged, promise: Guarantee, uploads: Uploads | str, *, seed: int) -> Audit | None:
    """Return whether what is promised of sums holds together with the clients that may tell their shares; None where
    nothing is promised of sums."""
    colluding, epsilon, delta = promise.sum_without, promise.epsilon_claimed, promise.delta
    if colluding is None or epsilon is None or delta is None:
        return None
    one = next((s for stages in prepared.stages.values() for s in stages if type(s) is MessageStage), None)
    if one is None or one.noise.by_server or one.noise.distribution != "gaussian" or isinstance(uploads, str):
        return Audit(
            AuditName.SHARES, Outcome.UNTESTED, "no Gaussian noise of clients on what they send could be replayed"
        )
    gone = max((fact.most(uploads.senders) for fact in prepared.facts if isinstance(fact, Absent)), default=0)
    colluding = max(colluding, gone)
    honest, left = uploads.senders - colluding, 1 - colluding * uploads.share
    if honest < 1 or left <= 0:
        return Audit(
            AuditName.SHARES, Outcome.REFUTED, f"{colluding} of {uploads.senders} colluding clients leave no noise"
        )
    noise = one.noise
    # The root of the sum of the others' squared weights is least where these are equal.
    mu = math.sqrt(noise.releases * honest) * noise.sensitivity * uploads.share / (noise.scale * left)
    spent = epsilon_of_mu(mu, delta)
    words = f"sums less the messages of {colluding} of {uploads.senders} clients: epsilon {spent:.4g} of {epsilon:.4g}"
    if spent > epsilon * (1 + SLACK):
        return Audit(AuditName.SHARES, Outcome.REFUTED, f"{words} is accounted from what is stated")
    together = dataclasses.replace(noise, scale=noise.scale * math.sqrt(honest))
    fields = {f.name: getattr(one, f.name) for f in dataclasses.fields(one)}
    fields |= {"noise": together, "stated": stated_curve(together), "clients": uploads.senders}
    stage = SumStage(**fields, colluding=colluding)
    pairs = stage.pairs(derive(seed, "audits", "shares"))
    curve, level = Curve.of(stage.stated), REFUTED_AT / len(pairs)
    seen = [replayed(stage, pair, curve, level, (seed, -1 - at)) for at, pair in enumerate(pairs)]
    worst, power = min(seen, key=lambda found: found.p), max(found.power for found in seen)
    p = min(1.0, len(seen) * worst.p)
    outcome = Outcome.REFUTED if p <= REFUTED_AT else Outcome.PASSED if power >= ENOUGH else Outcome.UNTESTED
    return Audit(AuditName.SHARES, outcome, f"{words}; {worst.words}", p, power)
