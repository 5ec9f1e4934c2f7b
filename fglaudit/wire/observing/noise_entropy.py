"""Has every number of the noise randomness of its own? A hook is called again with some of its random numbers redrawn.

Where more than k numbers of the noise change with no random number but k of those that a hook draws, they are not
independent, whatever rule connects them: the last of eight may be a hash of seven, which no statistic of what is sent
need show. Nor are they believed to be if two share a random number and one has another beside it. Whole numbers stay as
they are meanwhile: they may be seeds. A generator on the CPU that torch seeds has 32 bits, however long its seed is.
Who expands a seed with another library's generator makes many numbers of one, and which of them are made of one draw
there is not seen: that is said. A call in which nobody looks must give the same noise.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from fglaudit.facts import Additive, Fact, Memoised, Sampled, Target
from fglaudit.interfaces import DefenseSession
from fglaudit.rng import KEY_BYTES, copied, derive, split
from fglaudit.wire.observing.draw_dependencies import CALLS, LOOKS, Changed, alone, give, partly_shared
from fglaudit.wire.observing.redrawn import SEED_BITS, Redrawn
from fglaudit.wire.observing.rng_audit import WATCHED
from fglaudit.wire.observing.stated import MANY, Hook, Stated, Values, one_message, own, stepped, unlike

_SECRET = 62
"""Bits of a seed that nobody guesses."""
_MOST_CALLS, _MOST_VALUES = 1024, 2**22
"""Calls beyond which nothing is asked, and numbers of noise in all of them."""
_MOST_SEEDS = 128
"""Whole numbers that are redrawn one by one."""
_WHY = "noise of some numbers that follows from that of others: together they change with fewer random numbers"
_PARTLY = (
    "noise of some numbers that is made of others' random numbers too, beside one that those are not made of: what is"
    " left of it is not known; draw every number by itself"
)
_FEW_SEEDS = (
    "noise made of {:.0f} random bits, so that all of it can be guessed; draw every number from the generator that the"
    " hook is handed"
)

_EXPANDED = (
    "noise that another library draws from a seed, so that it is not seen whether every number has a draw of its own;"
    " draw it with torch, from the generator"
)

Called = Callable[..., Tensor | None]
"""Calls a hook under a :class:`Redrawn`, or None, with ``another`` generator, one with a ``secret`` key, or the run's,
and returns its noise [N] in units of what arithmetic may add to two draws of it; None where it cannot be told."""


def entropy_deficits(
    session: DefenseSession,
    asked: Sequence[Stated],
    given: tuple[Hook, Values],
    few: Callable[[], tuple[Hook, Values]] | None,
    rng: torch.Generator,
) -> dict[Target, str]:
    """Return the targets of ``asked`` of whose noise some numbers are made of fewer random numbers than they are.

    Args:
        session: is copied for every call.
        given: the hook, and the values that it is called on.
        few: gives the same of a few messages, which are looked at where all are too many; None: there are none.
        rng: a copy of it drives every call.
    """
    found: dict[Target, str] = {}
    for about in asked:
        if about.part is not None or not _independent(about.facts):
            continue
        why = _strange_draws(_caller(session, *given, about, rng), rng)
        if why is None and few is not None:
            why = _strange_draws(_caller(session, *few(), about, rng), rng)
        if why:
            found[about.target] = why
    return found


def _independent(facts: Sequence[Fact]) -> bool:
    """Whether a continuous random number of its own is stated to be added to every value, in every call."""
    noise = any(isinstance(fact, Additive) for fact in facts)
    return noise and not (unlike(facts) or stepped(facts) or any(isinstance(f, Memoised) for f in facts))


def _caller(session: DefenseSession, hook: Hook, given: Values, about: Stated, rng: torch.Generator) -> Called:
    # A sample's draws change all numbers, unless there is nothing to sample.
    if any(isinstance(fact, Sampled) for fact in about.facts):
        given = {**given, about.name: torch.zeros_like(given[about.name])}

    def called(mode: Redrawn | None, another: bool = False, secret: bool = False) -> Tensor | None:
        values = {name: own(value) for name, value in given.items()}
        run = split(copied(rng), "another") if another else copied(rng)
        run = derive(0, "secret", key=run.get_state().numpy().tobytes()[:KEY_BYTES]) if secret else run
        if mode is not None:
            mode.run = run
        try:
            with mode or contextlib.nullcontext():
                _, left = hook(copy.deepcopy(session), values, run)
        except Exception:  # whatever a plugin expects of messages, or of random numbers
            return None
        entered, sent = given[about.name], left[about.name]
        if one_message(about.target, entered, sent):
            entered, sent = entered[:1], sent[:1]
        part = about.noise(entered, sent)
        if part is None or not bool(part[0].isfinite().all()):
            return None
        return (part[0] / (4 * part[1] + 2.0**-30 * part[2].scale)).flatten().cpu()

    return called


def _strange_draws(called: Called, rng: torch.Generator) -> str | None:
    """Return why some numbers of the noise are made of fewer random numbers, or of few seeds; empty where they are not,
    None where to tell takes too long."""
    plain = Redrawn()
    if (base := called(plain)) is None:
        return None
    if plain.count == 0 or base.numel() == 0:
        return ""
    calls = CALLS + sum(2 * (end - start).bit_length() for start, end, _ in plain.drawn)
    if calls > _MOST_CALLS or calls * base.numel() > _MOST_VALUES:
        return None

    def changed(chosen: Tensor, look: int = 0) -> Tensor:
        mode = Redrawn(chosen, split(copied(rng), f"redrawn {look}"))
        other = called(mode)
        if other is None or mode.count != plain.count or other.shape != base.shape:
            return torch.ones_like(base, dtype=torch.bool)  # another path, where any number may be another one
        return (other - base).abs() > 1

    if bool(changed(torch.zeros(plain.count, dtype=torch.bool)).any()):
        return ""  # the hook draws from elsewhere too, which is found by calling it twice
    unseen = called(None)
    if unseen is None or unseen.shape != base.shape or bool(((unseen - base).abs() > 1).any()):
        return WATCHED
    bits = _bits(called, plain)
    complete, why = _of_fewer(plain, changed, bits, base.numel(), rng)
    return why if why or complete else _of_few_seeds(called, plain, changed, bits)


def _bits(called: Called, plain: Redrawn) -> Tensor:
    """Return how many random bits each drawn number has [M]: none where another generator of the run gives the same."""
    called(another := Redrawn(), another=True)
    plain.drawn = [
        (start, end, 0.0 if math.isnan(bits) and same else bits)
        for (start, end, bits), same in zip(plain.drawn, plain.as_in(another), strict=True)
    ]
    return torch.cat([torch.full((end - start,), bits) for start, end, bits in plain.drawn])


def _of_fewer(plain: Redrawn, changed: Changed, bits: Tensor, numbers: int, rng: torch.Generator) -> tuple[bool, str]:
    """Return whether each of the ``numbers`` of noise has a real random number of its own, and why they have not."""
    owned, owners = torch.zeros(numbers, dtype=torch.bool), torch.zeros(plain.count, dtype=torch.bool)
    for look in range(LOOKS):
        if not bool(owned.all()):
            give(plain, alone(plain, changed, numbers, look), owned, owners)
    complete = bool(owned.all()) and bool((bits[owners] == math.inf).all())
    if not complete:
        with_owners, with_others = _with(changed, owners), _with(changed, ~owners & ~bits.isfinite())
        if int((with_owners & ~with_others).sum()) > int(owners.sum()):
            return complete, _WHY
    free = ~bits.isfinite()
    simple = complete and sum(not math.isfinite(each) for _, _, each in plain.drawn) == 1
    if not simple and bool(free.any()) and partly_shared(changed, free, split(copied(rng), "shared")):
        return complete, _PARTLY
    return complete, ""


def _of_few_seeds(called: Called, plain: Redrawn, changed: Changed, bits: Tensor) -> str | None:
    """Return why noise that is expanded from seeds can be guessed, or is not seen through; None: too many seeds."""
    expanded = ~changed(bits == math.inf, 0)
    if int(expanded.sum()) < MANY:
        return ""
    if (short := _short(called, plain)) and len(short) <= _MOST_SEEDS:
        seeded = torch.stack([changed(drawn, 0)[expanded] for drawn in short]).sum(0)
        if int(((seeded > 0) & (seeded * SEED_BITS < _SECRET)).sum()) >= MANY:
            return _FEW_SEEDS.format(SEED_BITS)
    seeds = (bits.isfinite() & (bits > 0)).nonzero()[:, 0]
    if len(seeds) > _MOST_SEEDS:
        return None
    touched = [changed(torch.arange(plain.count) == seed, 0)[expanded] for seed in seeds]
    secret = _fewest_bits(torch.stack(touched), bits[seeds]) if touched else math.inf
    if secret < _SECRET:
        return _FEW_SEEDS.format(secret)
    if not len(seeds):  # noise so small that a change of it drowns in rounding has no seed either
        return ""
    return "" if bool(_with(changed, ~bits.isfinite())[expanded].all()) else _EXPANDED


def _short(called: Called, plain: Redrawn) -> list[Tensor]:
    """Return the random numbers [M] of every generator that torch seeded. One that :func:`fglaudit.rng.split` makes is
    so only as long as nobody has a key."""
    called(secret := Redrawn(), secret=True)
    kept = [one if other is not None else None for one, other in zip_longest(plain.short, secret.short, fillvalue=0)]
    found = {seed: torch.zeros(plain.count, dtype=torch.bool) for seed in kept if seed is not None}
    for (start, end, bits), seed in zip(plain.drawn, kept, strict=False):
        if seed is not None and bits != 0:
            found[seed][start:end] = True
    return [drawn for drawn in found.values() if bool(drawn.any())]


def _with(changed: Changed, chosen: Tensor) -> Tensor:
    """Return which numbers of noise change with the ``chosen`` random numbers, as far as few calls tell."""
    return torch.stack([changed(chosen, look) for look in range(LOOKS)]).any(0)


def _fewest_bits(touched: Tensor, bits: Tensor) -> float:
    """Return of how many bits many numbers of noise are made that change with the same seeds, at the least.

    Args:
        touched: [seeds, numbers] which change with which.
        bits: [seeds].
    """
    together, count = torch.unique(touched, dim=1, return_counts=True)
    secret = (together * bits[:, None]).sum(0)[(count >= MANY) & together.any(0)]
    return float(secret.min()) if len(secret) else math.inf
