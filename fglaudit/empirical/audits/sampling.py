"""Are losses drawn independently, as a Poisson sample is? Counted in sums of many losses that all point the same way.

With E losses of gradient ``clip`` along one axis, a step's noisy sum is ``clip N + noise``, N being how many were
drawn: binomial, and independent over steps, if each is drawn with the stated rate by itself. Samples of a fixed size
have N without variance, and batches of shuffled losses come to E over an epoch.
"""

from __future__ import annotations

import math

import torch
from scipy.stats import chi2

from fglaudit.empirical.audits.noise_tests import Found, along
from fglaudit.empirical.replays.staging import Staged, scaled_after
from fglaudit.facts import GRADIENTS, Additive, Clipped, Sampled, first
from fglaudit.guarantees import REFUTED_AT, Audit, Outcome
from fglaudit.rng import derive

MOST_LOSSES = 2**17
NUMBERS = 2**21
LEAST_SHARE = 0.25
"""Least variance of the count, in variances of the noise, at which it can be seen."""


def sampling_audit(staged: Staged, *, seed: int) -> Audit | None:
    """Return the audit of stated Poisson samples of losses; None where none are stated."""
    facts = staged.facts
    sampled, clip = first(facts, Sampled, GRADIENTS), first(facts, Clipped, GRADIENTS)
    noise, after = first(facts, Additive, GRADIENTS), scaled_after([f for f in facts if f.target == GRADIENTS])
    if sampled is None or sampled.rate >= 1:
        return None
    if clip is None or noise is None or after is None or after.factor == 0:
        return Audit("sampling", Outcome.UNTESTED, "what is done to sampled losses is not stated as a clip and noise")
    per_loss = clip.bound**2 * sampled.rate * (1 - sampled.rate)
    losses = int(min(MOST_LOSSES, max(256, 4 * noise.std**2 / per_loss)))
    share = losses * per_loss / max(noise.std**2, 1e-300)
    if share < LEAST_SHARE:
        return Audit("sampling", Outcome.UNTESTED, f"noise hides how many of {losses} losses are drawn")
    clients = max(16, NUMBERS // losses)
    steps = max(8, math.ceil(1 / sampled.rate))
    rng, session = derive(seed, "audits", "sampling"), staged.fresh()
    gradients = torch.full((losses, clients, 1), 10 * clip.bound)
    seen = torch.stack([session.local_update(gradients, rng)[:, 0].double() for _ in range(steps)])
    spread = abs(after.factor) * math.sqrt(losses * per_loss + noise.std**2)
    center = after.offset + after.factor * clip.bound * losses * sampled.rate
    z = ((seen - center) / spread).reshape(1, steps, clients, 1)
    found = [*_variance(z), *along(z, 1), *along(z, 2)]
    worst = min(found, key=lambda each: each.p)
    p = min(1.0, worst.p * len(found))
    words = worst.words.replace("noise", "how many losses are drawn") if p <= REFUTED_AT else "drawn as stated"
    detail = f"{losses} losses of {clients} clients over {steps} steps at rate {sampled.rate:g}: {words}"
    return Audit("sampling", Outcome.REFUTED if p <= REFUTED_AT else Outcome.PASSED, detail, p)


def _variance(z: torch.Tensor) -> list[Found]:
    total, count = float(z.square().sum()), z.numel()
    size = math.sqrt(total / count)
    return [
        Found(
            min(1.0, 2 * float(chi2.cdf(total, count))), f"noise varies {size:.3g} times as much as an independent draw"
        ),
        Found(
            min(1.0, 2 * float(chi2.sf(total, count))),
            f"noise is off by {size:.3g} times what an independent draw gives",
        ),
    ]
