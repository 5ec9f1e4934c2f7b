"""Faults of code that stands where nobody asks: in a part of a session of this package, and in what counts bytes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from bench.redteam.planted import Broken, fault
from fglaudit.defenses.noise.noisy_messages import NoiseSession
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.privacy.mechanism import Mechanism, draw


@dataclasses.dataclass(frozen=True)
class _Known(Mechanism):
    """Noise that everybody can draw again, each time another."""

    drawn: list[int] = dataclasses.field(default_factory=list)

    def with_noise(self, values: Tensor, rng: torch.Generator) -> Tensor:
        self.drawn.append(len(self.drawn))
        known = torch.Generator().manual_seed(self.drawn[-1])
        return values + (self.scale * draw(self.distribution, values.shape, known)).to(values)


@fault
class PartsOfOthers(Broken):
    """A session of this package that holds a mechanism of somebody else, in the session that is trained with alone."""

    sessions: ClassVar[int] = 0

    @classmethod
    def begin(cls) -> None:
        cls.sessions = 0

    def __new__(cls, inner: DefenseSession) -> DefenseSession:  # type: ignore[misc]
        assert isinstance(inner, NoiseSession)
        cls.sessions += 1
        if cls.sessions == 1:
            inner.noised = {payload: (release, _known(own)) for payload, (release, own) in inner.noised.items()}
        return inner


def _known(own: Mechanism) -> _Known:
    return _Known(**{field.name: getattr(own, field.name) for field in dataclasses.fields(own)})


@fault
class BytesTell(Broken):
    """As many more bytes are counted as there are words in a client's rows."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.words: dict[int, int] = {}

    def prepares(self) -> bool:
        return True

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        self.words[client.client] = int((client.x > 0.5).sum())
        return self.inner.prepare(client, rng)

    def overhead(self) -> tuple[Tensor, Tensor]:
        more = torch.tensor([self.words[client] for client in sorted(self.words)])
        return more, torch.zeros_like(more)


@fault
class BytesOfNobody(Broken):
    """Honest: a fixed number of bytes more for every client."""

    def overhead(self) -> tuple[Tensor, Tensor]:
        return torch.full((3,), 8), torch.zeros(3, dtype=torch.long)


BROKEN: tuple[tuple[str, str], ...] = (
    ("PartsOfOthers", "sums"), ("PartsOfOthers", "latents"), ("BytesTell", "sums"),
)  # fmt: skip
"""What is wrong, and with what."""
HONEST: tuple[tuple[str, str], ...] = (("BytesOfNobody", "sums"),)
"""What is right, and on what."""
