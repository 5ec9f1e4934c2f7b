"""A call in which some of the random numbers that are drawn from generators are others, all else equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fglaudit.rng import undrawn_seed

_CONTINUOUS = {
    "rand", "randn", "rand_like", "randn_like", "normal", "normal_", "uniform", "uniform_", "exponential",
    "exponential_", "cauchy_", "log_normal_",
}  # fmt: skip
_WHOLE = {"randint", "randint_like", "random", "random_"}
"""Operators of torch that draw continuous numbers, and whole ones."""
SEED_BITS = 32
"""What torch's generator on the CPU takes of any seed."""


class Redrawn(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the random numbers that are drawn from generators, and draws the ``chosen`` ones [count] from ``others``.

    Attributes:
        run: the run's own generator; others are as secret as their seeds are.
        drawn: numbers that were drawn together: the first, the one after the last, and their bits, infinite where they
            are continuous, not a number where they are another generator's, 0 where everybody can draw them.
        short: of all that was drawn together, what torch took of the seed of another generator than the run's, which
            is 32 bits of any seed; None where it has no seed like that.
    """

    run: torch.Generator | None = None

    def __init__(self, chosen: Tensor | None = None, others: torch.Generator | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: list[tuple[int, int, float]] = []
        self.short: list[int | None] = []
        self._seeded: dict[bytes, int] = {}
        self._chosen, self._others = chosen, others
        self._states: list[Tensor] = []

    @property
    def count(self) -> int:
        """How many were drawn so far."""
        return self.drawn[-1][1] if self.drawn else 0

    def as_in(self, other: Redrawn) -> list[bool]:
        """Return of all that was drawn together whether generators were in the same states in ``other``."""
        same = [torch.equal(one, two) for one, two in zip(self._states, other._states, strict=False)]
        return same + [False] * (len(self._states) - len(same))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given, name = kwargs or {}, func.overloadpacket.__name__
        drawn_from = given.get("generator")
        if drawn_from is None:
            return func(*args, **given)
        # The object is another one here: the same generator is where the run's own is.
        state = drawn_from.get_state()
        runs = self.run is not None and torch.equal(state, self.run.get_state())
        seed = None if runs else self._seed_of(drawn_from, state)
        before = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        made = func(*args, **given)
        if seed is not None:
            self._seeded[_bytes(drawn_from)] = seed
        if name not in _CONTINUOUS | _WHOLE or (name in _WHOLE and not runs):
            return made
        self._states.append(state)
        self.short.append(seed)
        start, end = self.count, self.count + made.numel()
        bits = _bits(made, args) if name in _WHOLE else math.inf if runs else math.nan
        self.drawn.append((start, end, bits))
        if self._chosen is not None and bool((chosen := self._chosen[start:end]).any()) and len(chosen) == end - start:
            other = func(*before, **(given | {"generator": self._others}))
            made.copy_(torch.where(chosen.view(made.shape).to(made.device), other, made))
        return made

    def _seed_of(self, rng: torch.Generator, state: Tensor) -> int | None:
        """Return what torch took of the seed of ``rng``, if it is as it was seeded or only drew since."""
        if rng.device.type != "cpu":
            return None
        seed = undrawn_seed(rng)
        return self._seeded.get(state.numpy().tobytes()) if seed is None else seed % 2**SEED_BITS


def _bits(made: Tensor, args: Sequence[Any]) -> float:
    """Return how many bits each of the whole numbers ``made`` has, drawn with ``args``."""
    ends = [arg for arg in args if isinstance(arg, int)]
    if ends:
        return math.log2(max(1, ends[-1] - (ends[0] if len(ends) > 1 else 0)))
    size = 2 / torch.finfo(made.dtype).eps if made.is_floating_point() else torch.iinfo(made.dtype).max
    return math.log2(size)


class Moved(Redrawn):  # type: ignore[no-untyped-call]
    """A call in which some continuous numbers that the run's generator gives are moved, all else equal.

    Args:
        by: of every tensor of noise, in the order in which they are drawn; of draws of another size none is moved.
    """

    def __init__(self, by: Sequence[Tensor]) -> None:
        super().__init__()
        self.by = list(by)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = self.count
        made = super().__torch_dispatch__(func, types, args, kwargs)
        if self.by and self.count - before == self.by[0].numel() and self.drawn[-1][2] == math.inf:
            made += self.by.pop(0).view(made.shape).to(made)
        return made


class Shadowed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A call in which everything that seems to be drawn from the run's generator is drawn from its shadow.

    Generators in one state have one shadow, so that who draws again, from a copy, gets the same, and cannot tell. Those
    of which the run's generator gave the seed have another seed.

    Args:
        run: the run's own generator, on the CPU as all are that hooks are handed, as it is before the call.
        shadow: another one; or a copy of it, with which nothing changes.
    """

    def __init__(self, run: torch.Generator, shadow: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shadows = {_bytes(run): shadow.get_state()}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        rng = given.get("generator")
        if not isinstance(rng, torch.Generator) or (state := _bytes(rng)) not in self._shadows:
            return func(*args, **given)
        shadow = torch.Generator()
        shadow.set_state(self._shadows[state])
        before = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        made = func(*args, **given)
        other = func(*before, **(given | {"generator": shadow}))
        self._shadows[_bytes(rng)] = shadow.get_state()
        return made.copy_(other) if isinstance(made, Tensor) else other


def _bytes(rng: torch.Generator) -> bytes:
    state: bytes = rng.get_state().numpy().tobytes()
    return state
