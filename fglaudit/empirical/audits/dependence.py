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
from fglaudit.guarantees import REFUTED_AT, Audit, Outcome
from fglaudit.interfaces import Defense
from fglaudit.privacy.accounted import Noised
from fglaudit.rng import derive

GENERATORS = 16
"""Bindings: with so many, noise that is other noise under a rotation shows it in its inner products."""
LARGE = (1.0, 1000.0)
"""Sizes of inputs, in lengths of the real ones, at which the size of the noise must be the same."""
TOO_SMALL = 1.5
SHAPE_NUMBERS = 2**17
"""At which a sum of twelve uniform numbers, of fourth moment 2.9, shows that it is not normal."""
MOST_GENERATORS = 400
"""Of one release each, to come to so many numbers."""
SECONDS = 60.0


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
        return tuple(Audit(name, Outcome.UNTESTED, why) for name in ("noise", "dependence"))
    sizes: list[Found] = []
    depends: list[Found] = []
    foreign: list[str] = []
    equal: list[tuple[str, bool | None]] = []
    kept: list[tuple[str, Tensor]] = []
    untold: list[str] = []
    fewest = 0
    within = [bench.at(bench.size_within()) for bench in found]
    played = _together(staged, within, seed)
    again = _together(staged, within, seed, generators=1)
    for number, bench in enumerate(found):
        name, seen = bench.noise.payload, played[number]
        if not torch.equal(again[number][0], seen[0]):
            foreign.append(name)
        if torch.equal(seen[0], seen[1]):
            equal.append((name, _equal_elsewhere(defense, context, bench, seed, seen[0, 0])))
        z = _standardised(bench, seen)
        if z is None:
            left_out.append(f"{bench.fact.distribution} noise on {name} has no test here")
            continue
        fewest = min(fewest or z.numel(), z.numel())
        sizes += [_of(name, each) for each in (*noise_tests.too_small(z), *noise_tests.wrong_shape(z))]
        if bench.plain:
            sizes.append(_of(name, noise_tests.in_steps(z, bench.resolution())))
        if noise_tests.larger(z):
            untold.append(f"noise on {name} is larger than stated: only its signs were compared")
            z = noise_tests.signs_of(z, derive(seed, "audits", "signs", number))
        elif (more := _more(staged, bench, seed, z)) is not None:
            sizes.append(_of(name, noise_tests.light_tails(more)))
        kept.append((name, z))
        depends += [_of(name, each) for axis in range(4) for each in noise_tests.along(z, axis)]
        depends += [_of(name, each) for each in noise_tests.turned(z)]
        for size in LARGE:
            sizes += [_of(f"{name}, inputs {size:g} times as long", each) for each in _at(staged, bench, seed, size)]
    for one in range(len(kept)):
        for other in range(one):
            names = kept[one][0], kept[other][0]
            depends += noise_tests.across(kept[one][1], kept[other][1], names)
    power = _power(fewest, max(1, len(sizes))) if fewest else None
    return (
        _audit("noise", sizes, left_out, power),
        _dependence(depends, equal, [*left_out, *untold]),
        Audit(
            "foreign randomness",
            Outcome.UNTESTED if foreign or equal else Outcome.PASSED,
            f"equal generators gave different noise on {', '.join(foreign)}: it comes from elsewhere"
            if foreign
            else f"two generators gave equal noise on {equal[0][0]}: it comes from elsewhere"
            if equal
            else "equal generators gave equal noise",
        ),
    )


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
    generators = min(MOST_GENERATORS, math.ceil(SHAPE_NUMBERS / z[0, 0].numel()))
    played, given = [], bench.at(bench.size_within())
    for generator in range(generators + generators % 2):
        rng = derive(seed, "audits", "noise shape", generator)
        played.append(given.play(staged.fresh(), 0, rng))
    seen = _standardised(bench, torch.stack(played).unsqueeze(1))
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


def _audit(name: str, found: Sequence[Found], left_out: Sequence[str], power: float | None) -> Audit:
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
            return Audit("dependence", Outcome.REFUTED, words, 0.0)
    audit = _audit("dependence", found, left_out, None)
    if equal and audit.outcome is not Outcome.REFUTED:
        words = (
            f"two generators gave equal noise on {equal[0][0]}, and what another process gives is not known or differs"
        )
        return Audit("dependence", Outcome.UNTESTED, words)
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
