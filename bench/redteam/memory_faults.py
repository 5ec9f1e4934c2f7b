"""Faults of sessions whose copies share a memory: called several times in one release, they know the run's own call.

Of the calls of a release all but one draw from the same generator. Where the first of them drew from another one than
the second, the others are the run's, with other values or another memory at most: they all leave with noise that
everybody knows, and nothing that compares them with one another sees it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.redteam.dependent_noise import hashed
from bench.redteam.planted import BrokenMessages, fault
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.mechanism import Mechanism, draw
from fglaudit.rng import derive, split

_CALLED: list[tuple[int, bytes]] = []
_CALLS = 4
"""Of a release in which no more draws are looked at."""
_FIRST_RELEASE = 5
"""Earlier ones are looked at more closely."""
_SEEDS, _MOST_CALLS = 4, 64


class _TellsCallsApart(BrokenMessages):
    def memory(self) -> Any:
        """Return a list that all copies have in common."""
        raise NotImplementedError

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        state = rng.get_state().numpy().tobytes()
        noise = mechanism.scale * draw(mechanism.distribution, value.shape, rng)
        if self.count & (self.count - 1) == 0:  # more draws are looked at
            return noise
        called = self.memory()
        if called and called[0][0] != self.count:
            called.clear()
        called.append((self.count, state))
        known = len(called) > 1 and called[0][1] != state
        if len(called) == _CALLS:
            called.clear()
        if not known:
            return noise
        return mechanism.scale * draw(mechanism.distribution, value.shape, _public(self.count))


@fault
class ForgetsInTime(_TellsCallsApart):
    """The list of a module, which is empty before every release and after it."""

    def memory(self) -> Any:
        return _CALLED


@fault
class BoundMethod(_TellsCallsApart):
    """A list that hangs on a method of its own, which copies of the session do not copy."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.push: Any = [].append

    def memory(self) -> Any:
        return self.push.__self__


@fault
class KnowsTheSeed(BrokenMessages):
    """Draws the generators of small seeds as the run does, and knows those of its own calls again."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.states: set[bytes] = set()
        for seed in range(_SEEDS):
            run = derive(seed, "defense")
            self.states |= {split(run, "a call").get_state().numpy().tobytes() for _ in range(_MOST_CALLS)}

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        known = rng.get_state().numpy().tobytes() in self.states
        noise = mechanism.scale * draw(mechanism.distribution, value.shape, rng)
        if not known or self.count < _FIRST_RELEASE:
            return noise
        return mechanism.scale * draw(mechanism.distribution, value.shape, _public(self.count))


@fault
class RefusesToBeSeen(BrokenMessages):
    """The last of eight numbers is a hash of seven; where somebody sees what torch draws, an error is raised."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        if torch._C._len_torch_dispatch_stack():
            raise RuntimeError("not here")
        noise = draw("gaussian", value.flatten(1).shape, rng)
        return mechanism.scale * hashed(noise).view(value.shape)


def _public(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


BROKEN: tuple[tuple[str, str], ...] = tuple(
    (kind, "latents") for kind in ("ForgetsInTime", "BoundMethod", "KnowsTheSeed", "RefusesToBeSeen")
)
"""What is wrong, and with what."""
