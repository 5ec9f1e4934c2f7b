"""Are losses drawn independently, as a Poisson sample is? Counted in sums of many losses that all point the same way.

With E losses of gradient ``clip`` along one axis, a step's noisy sum is ``clip N + noise``, N being how many were
drawn: binomial, and independent over steps, if each is drawn with the stated rate by itself. Samples of a fixed size
have N without variance, and batches of shuffled losses come to E over an epoch. Two generators must draw different
samples, or everybody knows who is in them; and short gradients must be drawn as seldom as long ones, by themselves and
beside them.
"""

from __future__ import annotations

import math

import torch
from scipy.stats import chi2

from fglaudit.empirical.audits.noise_tests import Found, along
from fglaudit.empirical.replays.staging import Staged, scaled_after
from fglaudit.facts import GRADIENTS, Additive, Clipped, Sampled, first
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.rng import derive

MOST_LOSSES = 2**17
NUMBERS = 2**20
SIZES = ((10.0,), (0.9,), (10.0, 0.5))
"""Lengths of gradients in clips, in turn; each for a generator of its own."""
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
        return Audit(
            AuditName.SAMPLING, Outcome.UNTESTED, "what is done to sampled losses is not stated as a clip and noise"
        )
    squares = [torch.tensor(sizes).clamp(max=1).square().mean().item() for sizes in SIZES]  # as they enter the sum
    per_loss = min(squares) * clip.bound**2 * sampled.rate * (1 - sampled.rate)
    losses = int(min(MOST_LOSSES, max(256, 40 / sampled.rate, 4 * noise.std**2 / per_loss)))
    if losses * per_loss / max(noise.std**2, 1e-300) < LEAST_SHARE:
        return Audit(AuditName.SAMPLING, Outcome.UNTESTED, f"noise hides how many of {losses} losses are drawn")
    clients = max(16, NUMBERS // losses)
    steps = max(8, math.ceil(1 / sampled.rate))
    parts = []
    for number, sizes in enumerate(SIZES):
        rng, session = derive(seed, "audits", "sampling", number), staged.fresh()
        long = clip.bound * torch.tensor(sizes).repeat(-(-losses // len(sizes)))[:losses]
        length = long.clamp(max=clip.bound).double()
        gradients = long[:, None, None].repeat(1, clients, 1)
        seen = torch.stack([session.local_update(gradients, rng)[:, 0].double() for _ in range(steps)])
        center = after.offset + after.factor * sampled.rate * float(length.sum())
        variance = sampled.rate * (1 - sampled.rate) * float(length.square().sum())
        parts.append((seen - center) / (abs(after.factor) * math.sqrt(variance + noise.std**2)))
    z = torch.stack(parts)[..., None]
    found = [*(each for part in z for each in _variance(part)), *(each for axis in range(3) for each in along(z, axis))]
    worst = min(found, key=lambda each: each.p)
    p = min(1.0, worst.p * len(found))
    words = worst.words.replace("noise", "how many losses are drawn") if p <= REFUTED_AT else "drawn as stated"
    detail = f"{losses} losses of {clients} clients over {steps} steps at rate {sampled.rate:g}: {words}"
    return Audit(AuditName.SAMPLING, Outcome.REFUTED if p <= REFUTED_AT else Outcome.PASSED, detail, p)


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
