"""Are the losses of the run's own clients drawn at the stated rate, each of them? A defense that prepared these clients
may draw some nodes more often than others, by their degrees or classes, where gradients have the run's own shape.

Two bindings that prepared the clients are asked side by side with equal draws: one gets zeros, the other one a gradient
along an axis of its own for each loss. What they return differs by the sample alone, without any noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from fglaudit.empirical.replays.staging import Staged, scaled_after
from fglaudit.facts import GRADIENTS, Clipped, Sampled, first
from fglaudit.graph import ClientGraph
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.interfaces import DefenseSession
from fglaudit.rng import derive

_CALLS, _FEWEST = 400, 50
_NUMBERS, _MOST_NUMBERS = 2**28, 2**33
"""Of all gradients that are handed over: as long as more calls fit, and with the fewest."""
_STEPS = 8
"""Calls of one binding."""
_LONG = 10.0
"""Length of a gradient, in clips."""
_NEAR = 0.05


def own_sample_audit(
    staged: Staged, clients: Sequence[ClientGraph], shape: tuple[int, int, int] | None, *, seed: int
) -> Audit | None:
    """Return whether each loss of ``clients`` is drawn at the stated rate; None where no sample is stated.

    Args:
        shape: of the gradients [E, K, D] in the run; None: there were none.
    """
    sampled, clip = first(staged.facts, Sampled, GRADIENTS), first(staged.facts, Clipped, GRADIENTS)
    after = scaled_after([fact for fact in staged.facts if fact.target == GRADIENTS])
    if sampled is None or sampled.rate >= 1 or clip is None or after is None or not after.factor:
        return None
    if shape is None or not all(shape):
        return None
    numbers = 2 * math.prod(shape)
    if _FEWEST * numbers > _MOST_NUMBERS:
        why = "so many losses of so large a model are not drawn again"
        return Audit(AuditName.SAMPLING, Outcome.UNTESTED, why)
    calls = int(min(_CALLS, max(_FEWEST, _NUMBERS // numbers)))
    real = _losses(clients, shape)
    drawn, asked = torch.zeros(2, *shape[:2], dtype=torch.long)
    sessions: list[DefenseSession] = []
    for call in range(calls):
        if call % _STEPS == 0:
            sessions = [_prepared(staged, clients, seed + call) for _ in range(2)]
        gradients, place = _gradients(real, shape[2], _LONG * clip.bound, seed + call)
        given = torch.zeros_like(gradients), gradients
        zero, moved = (
            session.local_update(each, derive(seed, "audits", "own sample", call)).double()
            for session, each in zip(sessions, given, strict=True)
        )
        shares = ((moved - zero) / (after.factor * clip.bound))[:, : len(place)].T
        if not bool(((shares.abs() < _NEAR) | ((shares - 1).abs() < _NEAR)).all()):
            why = (
                "a loss's gradient is drawn, or noise, by what the gradients are: with equal draws another sum results"
            )
            return Audit(AuditName.SAMPLING, Outcome.UNTESTED, why)
        drawn[place] += (shares > 0.5).long() * real[place]
        asked[place] += real[place]
    return _compared(drawn, asked, sampled.rate)


def _prepared(staged: Staged, clients: Sequence[ClientGraph], seed: int) -> DefenseSession:
    session, rng = staged.fresh(), derive(seed, "audits", "own sample", "clients")
    for client in clients:
        session.prepare(client, rng)
    return session


def _losses(clients: Sequence[ClientGraph], shape: tuple[int, int, int]) -> Tensor:
    """Return which places [E, K] hold losses: clients with fewer training nodes than others have gradients of 0 behind
    theirs, which nobody needs to draw."""
    nodes = torch.tensor([int(client.train.sum()) for client in clients])
    if len(nodes) != shape[1] or int(nodes.max()) == 0 or shape[0] % int(nodes.max()):
        return torch.ones(shape[:2], dtype=torch.long)
    return (torch.arange(shape[0])[:, None] < nodes * (shape[0] // int(nodes.max()))).long()


def _gradients(real: Tensor, width: int, length: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return gradients [E, K, D] of which as many losses as fit have one along an axis of their own, and which."""
    place = torch.randperm(len(real), generator=derive(seed, "audits", "own sample", "place"))[:width]
    gradients = torch.zeros(*real.shape, width)
    gradients[place, :, torch.arange(len(place))] = length * real[place].float()
    return gradients, place


def _compared(drawn: Tensor, asked: Tensor, rate: float) -> Audit:
    """Return what comes of counts of draws [E, K]: of every loss, and of all of a client, beside binomial ones."""
    found = []
    for seen, tried in ((drawn, asked), (drawn.sum(0), asked.sum(0))):
        k, n = seen.flatten().numpy(), tried.flatten().numpy()
        tails = np.minimum(binom.cdf(k, n, rate), binom.sf(k - 1, n, rate))
        worst = int(tails.argmin())
        found.append((float(min(1.0, 4 * len(k) * tails[worst])), int(k[worst]), int(n[worst])))
    p, times, calls = min(found)
    words = f"of the run's own clients, losses are drawn {times} of {calls} times at rate {rate:g}"
    if p <= REFUTED_AT:
        return Audit(AuditName.SAMPLING, Outcome.REFUTED, f"{words}: some more often than others", p)
    return Audit(AuditName.SAMPLING, Outcome.PASSED, f"{words}, the least likely of all", p)
