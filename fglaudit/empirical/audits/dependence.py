"""Audits of the noise itself: is it as large and as distributed as stated, independent where nothing else is stated,
and does it come from the generator that was handed over?

Fresh bindings, each with a generator of its own, send one fixed input again and again, at several sizes. Where two
generators give equal noise, a second process is asked: noise that is equal there as well is known to everybody.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from scipy import stats
from torch import Tensor

from fglaudit.context import Context
from fglaudit.empirical.audits import noise_tests
from fglaudit.empirical.audits.noise_lab import Bench, benches
from fglaudit.empirical.audits.noise_tests import Found, standardised
from fglaudit.empirical.replays.staging import Staged
from fglaudit.facts import ROWS, Randomised, first
from fglaudit.graph import ClientGraph
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.interfaces import Defense
from fglaudit.privacy.accounted import Noised
from fglaudit.rng import derive

GENERATORS = 16
"""Bindings: with so many, noise that is other noise under a rotation shows it in its inner products."""
LARGE = (1.0, 1000.0)
"""Sizes of inputs, in lengths of the real ones, at which the size of the noise must be the same."""
TOO_SMALL = 1.5
SHAPE_NUMBERS = 2**19
"""At which a sum of twelve uniform numbers, of fourth moment 2.9, shows that it is not normal, and noise that it ends
at 4.1 standard deviations."""
MOST_GENERATORS = 400
"""To come to so many numbers."""
SECONDS = 60.0


@dataclass
class _Seen:
    """What was found out about the noise on all benches.

    Attributes:
        sizes, depends: tests of how large noise is and of its law, and of whether parts of it depend on one another.
        foreign: payloads whose noise differed under equal generators.
        equal: payloads whose noise two generators drew alike, and whether another binding did so too.
        kept: standardised noise by payload, to compare two of them.
        left_out, untold: what no test could tell, in words.
        fewest: numbers of noise on any bench.
    """

    left_out: list[str]
    sizes: list[Found] = field(default_factory=list)
    depends: list[Found] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    equal: list[tuple[str, bool | None]] = field(default_factory=list)
    kept: list[tuple[str, Tensor]] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    fewest: int = 0


def noise_audits(
    staged: Staged,
    defense: Defense,
    context: Context,
    mechanisms: Sequence[Noised],
    clients: Sequence[ClientGraph],
    *,
    seed: int,
) -> tuple[Audit, ...]:
    """Return the audits "noise", "dependence" and "foreign randomness"."""
    found, left_out = benches(staged, mechanisms, clients, derive(seed, "audits", "noise inputs"))
    if not found and (not left_out or first(staged.facts, Randomised, ROWS) is not None):
        return ()  # reports have tests of their own
    if not found:
        why = "; ".join(left_out) or "no noise is stated"
        return tuple(Audit(name, Outcome.UNTESTED, why) for name in (AuditName.NOISE, AuditName.DEPENDENCE))
    seen = _Seen(left_out=list(left_out))
    within = [bench.at(bench.size_within()) for bench in found]
    played = _together(staged, within, seed)
    again = _together(staged, within, seed, generators=1)
    for number, bench in enumerate(found):
        name, values = bench.noise.payload, played[number]
        if not torch.equal(again[number][0], values[0]):
            seen.foreign.append(name)
        if torch.equal(values[0], values[1]):
            seen.equal.append((name, _equal_elsewhere(defense, context, bench, seed, values[0, 0])))
        if (z := _standardised(bench, values)) is None:
            seen.left_out.append(f"{bench.fact.distribution} noise on {name} has no test here")
        else:
            if bench.plain:
                seen.sizes += [_of(name, each) for each in _steps(bench, z, values)]
            _test_bench(seen, staged, bench, z, seed, number)
    for number, (name, z) in enumerate(seen.kept):
        for other, before in seen.kept[:number]:
            seen.depends += noise_tests.across(z, before, (name, other))
    power = _power(seen.fewest, max(1, len(seen.sizes))) if seen.fewest else None
    return (
        _audit(AuditName.NOISE, seen.sizes, seen.left_out, power),
        _dependence(seen.depends, seen.equal, [*seen.left_out, *seen.untold]),
        _foreign_randomness(seen),
    )


def _test_bench(seen: _Seen, staged: Staged, bench: Bench, z: Tensor, seed: int, number: int) -> None:
    """Add to ``seen`` what tests find in the standardised noise ``z`` of one bench, alone."""
    name = bench.noise.payload
    seen.fewest = min(seen.fewest or z.numel(), z.numel())
    seen.sizes += [_of(name, each) for each in (*noise_tests.too_small(z), *noise_tests.wrong_shape(z))]
    if noise_tests.larger(z):
        seen.untold.append(f"noise on {name} is larger than stated: only its signs were compared")
        z = noise_tests.signs_of(z, derive(seed, "audits", "signs", number))
    elif (more := _more(staged, bench, seed, z)) is not None:
        seen.sizes += [_of(name, each) for each in (noise_tests.light_tails(more), noise_tests.cut_tails(more))]
    seen.kept.append((name, z))
    seen.depends += [_of(name, each) for axis in range(4) for each in noise_tests.along(z, axis)]
    seen.depends += [_of(name, each) for each in noise_tests.turned(z)]
    for size in LARGE:
        longer = _at(staged, bench, seed, size)
        seen.sizes += [_of(f"{name}, inputs {size:g} times as long", each) for each in longer]


def _steps(bench: Bench, z: Tensor, values: Tensor) -> tuple[Found, Found]:
    """Return tests of steps in noise that was seen as ``values``, ``z`` as standard normal numbers."""
    as_it_is = values.double() / (abs(bench.after.factor) * bench.fact.scale)
    resolution = bench.resolution()
    return noise_tests.in_steps(z, resolution), noise_tests.in_fine_steps(as_it_is, resolution)


def _foreign_randomness(seen: _Seen) -> Audit:
    name = AuditName.FOREIGN_RANDOMNESS
    if seen.foreign:
        why = f"equal generators gave different noise on {', '.join(seen.foreign)}: it comes from elsewhere"
        return Audit(name, Outcome.UNTESTED, why)
    if seen.equal:
        why = f"two generators gave equal noise on {seen.equal[0][0]}: it comes from elsewhere"
        return Audit(name, Outcome.UNTESTED, why)
    return Audit(name, Outcome.PASSED, "equal generators gave equal noise")


def _together(staged: Staged, found: Sequence[Bench], seed: int, generators: int = GENERATORS) -> list[Tensor]:
    """Return what every bench shows [G, T, S, D], all of them in turn in every release of one binding."""
    releases = [bench.releases(generators) for bench in found]
    seen: list[list[Tensor]] = [[] for _ in found]
    for generator in range(generators):
        rng, session = derive(seed, "audits", "noise", generator), staged.fresh()
        parts: list[list[Tensor]] = [[] for _ in found]
        for release in range(max(releases)):
            for number, bench in enumerate(found):
                if release < releases[number]:
                    parts[number].append(bench.play(session, release, rng))
        for number, part in enumerate(parts):
            seen[number].append(torch.stack(part))
    return [torch.stack(each) for each in seen]


def _more(staged: Staged, bench: Bench, seed: int, z: Tensor) -> Tensor | None:
    """Return noise of so many further generators, standardised [n], that light tails show; None where ``z``
    [G, T, S, D] has enough numbers."""
    if z.numel() >= SHAPE_NUMBERS:
        return None
    releases = bench.releases(MOST_GENERATORS)
    generators = min(MOST_GENERATORS, math.ceil(SHAPE_NUMBERS / (releases * z[0, 0].numel())))
    played, given = [], bench.at(bench.size_within())
    for generator in range(generators + generators % 2):
        rng, session = derive(seed, "audits", "noise shape", generator), staged.fresh()
        played.append(torch.stack([given.play(session, release, rng) for release in range(releases)]))
    seen = _standardised(bench, torch.stack(played))
    return None if seen is None else seen.flatten()


def _standardised(bench: Bench, seen: Tensor) -> Tensor | None:
    """Return ``seen`` [G, T, S, D] as standard normal numbers; differences of two generators where what enters the
    noise is not known."""
    scale = abs(bench.after.factor) * bench.fact.scale
    if bench.plain:
        return standardised(seen, bench.fact.distribution, scale)
    return _differences(bench, seen)


def _differences(bench: Bench, seen: Tensor) -> Tensor | None:
    scale = abs(bench.after.factor) * bench.fact.scale
    difference = seen[0::2] - seen[1::2]
    if bench.fact.distribution == "gaussian":
        return standardised(difference, "gaussian", scale * 2**0.5)
    return standardised(difference, f"{bench.fact.distribution}-difference", scale)


def _at(staged: Staged, bench: Bench, seed: int, size: float) -> list[Found]:
    """Return tests of the size of the noise on inputs ``size`` times as long, as far as numbers resolve it."""
    if isinstance(bench.inputs, Tensor) and not bool(bench.inputs.any()):
        return []
    (seen,) = _together(staged, [bench.at(size)], seed, generators=4)
    reach = bench.clip.bound if bench.clip is not None else size * float(bench.values().abs().max())
    if reach * 1e-6 > 0.01 * bench.fact.scale:
        return []
    z = _differences(bench, seen)
    return [] if z is None else [*noise_tests.too_small(z), *noise_tests.wrong_shape(z)]


def _of(name: str, found: Found) -> Found:
    return Found(found.p, f"on {name}: {found.words}")


def _audit(name: AuditName, found: Sequence[Found], left_out: Sequence[str], power: float | None) -> Audit:
    if not found:
        return Audit(name, Outcome.UNTESTED, "; ".join(left_out) or "nothing to test")
    worst = min(found, key=lambda each: each.p)
    p = min(1.0, worst.p * len(found))
    refuted = p <= REFUTED_AT
    words = worst.words if refuted else "as stated"
    missing = f"; not tested: {'; '.join(left_out)}" if left_out else ""
    outcome = Outcome.REFUTED if refuted else Outcome.UNTESTED if left_out else Outcome.PASSED
    return Audit(name, outcome, f"{words} ({len(found)} tests, p {p:.2g}){missing}", p, power)


def _dependence(found: list[Found], equal: Sequence[tuple[str, bool | None]], left_out: Sequence[str]) -> Audit:
    for name, elsewhere in equal:
        if elsewhere:
            words = f"two generators, in two processes, gave equal noise on {name}: everybody can draw it again"
            return Audit(AuditName.DEPENDENCE, Outcome.REFUTED, words, 0.0)
    audit = _audit(AuditName.DEPENDENCE, found, left_out, None)
    if equal and audit.outcome is not Outcome.REFUTED:
        words = (
            f"two generators gave equal noise on {equal[0][0]}, and what another process gives is not known or differs"
        )
        return Audit(AuditName.DEPENDENCE, Outcome.UNTESTED, words)
    return audit


def _power(numbers: int, tests: int) -> float:
    """Return the probability that the sum of squares of ``numbers`` shows noise too small by 1.5."""
    at = stats.chi2.ppf(REFUTED_AT / tests, numbers)
    return float(stats.chi2.cdf(at * TOO_SMALL**2, numbers))


def _equal_elsewhere(defense: Defense, context: Context, bench: Bench, seed: int, here: Tensor) -> bool | None:
    """Return whether another process, with another generator, gives the noise ``here`` [S, D]; None if none can say."""
    try:
        asked = pickle.dumps((sys.path, pickle.dumps((defense, context, bench, seed + 1))))
        code = f"from {__name__} import answer; answer()"  # not multiprocessing, which runs a user's script again
        done = subprocess.run(
            [sys.executable, "-c", code], input=asked, capture_output=True, timeout=SECONDS, check=True, env=_child()
        )
        there: Tensor = pickle.loads(done.stdout)
    except Exception:  # a plugin that cannot be sent to another process, or fails there: then nothing is known
        return None
    return torch.equal(there, here)


def _child() -> dict[str, str]:
    """Return the environment in which another process finds what this one has on its path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def answer() -> None:
    """In the other process: read what is asked for from standard input, and write the noise to standard output."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # what a plugin prints is no part of it
    sys.path[:], asked = pickle.loads(sys.stdin.buffer.read())
    out.write(pickle.dumps(_first_release(*pickle.loads(asked))))
    out.flush()


def _first_release(defense: Defense, context: Context, bench: Bench, seed: int) -> Tensor:
    rng = derive(seed, "audits", "elsewhere")
    return bench.at(bench.size_within()).play(defense.bind(context), 0, rng)
