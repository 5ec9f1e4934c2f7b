"""Is what a defense does, and does not state, done to noisy values? What is made of ``x + noise`` hides ``x`` as well.

A hook is called twice with equal draws, on ``x`` and on ``x + d``, with every number of the noise that it draws less by
``d`` in the second: whoever looks at nothing but ``x + noise`` gives the same. Then noise has the stated scale, and
every number of ``x`` one of its own; how large it seems in what left, and how far a record moves that, says nothing,
if ``x`` is no longer than stated: what is clipped before it enters must leave as what is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.empirical.audits.noise_lab import Bench, benches
from fglaudit.empirical.replays.staging import Staged
from fglaudit.graph import ClientGraph
from fglaudit.privacy.accounted import Noised
from fglaudit.rng import derive
from fglaudit.wire.observing.redrawn import Moved

SESSIONS, RELEASES = 8, 3
"""Bindings that are looked at, and releases of each."""
STEP = 0.3
"""Length of ``d`` in clips, so that nothing is clipped; without a clip in scales of the noise, for every number."""
FEWEST = 8
"""Numbers that must show where ``d`` is not taken off the noise."""
SHARE = 1e-3
"""Of these, how many may change by a rounding that goes the other way."""
DUST = 1e-5
"""Share of the largest change that arithmetic makes of nothing."""
LONG = 1e4
"""How many times the length that no clip changes a value has that every clip changes."""
ROUNDOFF, NEAR = 2.0**-18, 0.02
"""What arithmetic may leave, as a share of what leaves, and of the change that ``d`` makes at most."""


def noise_first(staged: Staged, mechanisms: Sequence[Noised], clients: Sequence[ClientGraph], *, seed: int) -> bool:
    """Whether what leaves is made of ``x + noise`` alone, noise as large as stated, for all that is said to have it."""
    found, left_out = benches(staged, mechanisms, clients, derive(seed, "audits", "noise inputs"))
    return bool(found) and not left_out and all(_clips(staged, b, seed) and _alike(staged, b, seed) for b in found)


def _alike(staged: Staged, bench: Bench, seed: int) -> bool:
    """Whether that holds from real values on, and from zeros, which may have no noise."""
    return all(_first(staged, bench.at(size), seed) for size in (bench.size_within(), 0.0))


def _clips(staged: Staged, bench: Bench, seed: int) -> bool:
    """Whether values beyond the stated clip leave as they do when they come clipped."""

    def left(inputs: Bench) -> Tensor:
        draws = derive(seed, "audits", "noise first", "clip")
        return inputs.play(staged.fresh(), 0, draws) + inputs.scaled(inputs.values())

    long = bench.at(LONG * bench.size_within())
    return bool(((left(long) - left(long.clipped())).abs() <= NEAR * bench.fact.scale * abs(bench.after.factor)).all())


def _first(staged: Staged, bench: Bench, seed: int) -> bool:
    steps = [_step(bench, derive(seed, "audits", "noise first", "step", at)) for at in range(RELEASES)]
    steps = steps[: bench.noise.releases]  # others in every release, so that noise that is kept does not follow
    moved = [bench.moved(step) for step in steps]
    still = [bench] * len(steps)

    def left(inputs: Sequence[Bench], unit: float) -> Tensor:
        """Return what leaves [sessions x releases, S, D] with the noise less by ``step / unit``."""
        seen = []
        for number in range(SESSIONS):
            session, draws = staged.fresh(), derive(seed, "audits", "noise first", number)
            for release, (one, step) in enumerate(zip(inputs, steps, strict=True)):
                mode = Moved([-part / unit for part in bench.parts(step)] if unit < math.inf else [])
                mode.run = draws
                with mode:
                    seen.append(one.play(session, release, draws))
                if mode.by:
                    seen[-1] = torch.full_like(seen[-1], torch.nan)  # not every number of it is drawn
                seen[-1] += 0.0 if one is bench else bench.after.factor * step
        return torch.stack(seen)

    base = left(still, math.inf)
    alone = (left(moved, math.inf) - base).abs()
    shows = alone > DUST * alone.max()
    if int(shows.sum()) < FEWEST:
        return False
    size_left = (base + bench.scaled(bench.values())).abs()
    near = (ROUNDOFF * (size_left + size_left.mean())).clamp(max=NEAR * float(alone[shows].median()))
    for unit in (bench.fact.scale, -bench.fact.scale, 1.0, -1.0):  # numbers of scale 1 that are multiplied, or not
        both = (left(moved, unit) - base).abs()
        if int((~(both <= near)).sum()) <= SHARE * int(shows.sum()):
            return True
    return False


def _step(bench: Bench, rng: torch.Generator) -> Tensor:
    """Return ``d`` [S, D]."""
    values = bench.values()
    moves = 2.0 * torch.randint(2, values.shape, generator=rng).double() - 1
    moves *= 0.5 + 0.5 * torch.rand(values.shape, generator=rng, dtype=torch.float64)  # no multiples of a step
    if bench.clip is None:
        return moves * (STEP * bench.fact.scale)
    width = {"L1": values.shape[1], "L2": math.sqrt(values.shape[1])}.get(bench.clip.norm, 1.0)
    return moves * (STEP * bench.clip.bound / width)
