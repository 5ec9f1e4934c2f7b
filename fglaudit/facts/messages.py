"""Facts about whole messages, and those of plugins that were read back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fglaudit.facts.base import Fact
from fglaudit.facts.explaining import Expected

LARGEST_FLOODING = 12.0
"""Standard deviations of flooding noise beyond which no opened value is off."""


@dataclass(frozen=True)
class Absent(Fact):
    """Messages of some senders are missing.

    Attributes:
        clients: who they are.
        share: of the senders that vanish, drawn afresh in every round, beside ``clients``.
    """

    clients: tuple[int, ...] = ()
    share: float = 0.0

    def applied(self, expected: Expected) -> Expected:
        return expected  # what is there is as it was

    def missing(self, absent: Tensor, senders: Tensor) -> bool:
        """Whether it accounts for ``absent``, those of ``senders`` whose messages are missing."""
        others = absent[~torch.isin(absent, torch.tensor(self.clients, dtype=absent.dtype))]
        return len(others) <= self.most(len(senders)) - len(self.clients)

    def most(self, senders: int) -> int:
        """Return how many of so many ``senders`` are missing in a round, at most."""
        return len(self.clients) + math.floor(self.share * senders + 0.5)


@dataclass(frozen=True)
class Sealed(Fact):
    """Travels sealed: the server can do linear algebra with it and not read it.

    Attributes:
        scheme: e.g. "bfv", "ckks", "secure-aggregation".
        readers: how many clients must pool their keys to read a message.
        flooding: standard deviation of the noise that opening adds.
        rounding: largest error that encoding adds to an opened value.
    """

    scheme: str
    readers: int = 1
    flooding: float = 0.0
    rounding: float = 0.0

    def applied(self, expected: Expected) -> Expected:
        """What is read when it is opened again."""
        return replace(expected, slack=expected.slack + self.rounding + LARGEST_FLOODING * self.flooding)


@dataclass(frozen=True)
class Foreign(Fact):
    """A plugin's own fact, read back from a recording: its class's name and fields. Nobody models it."""

    kind: str
    parameters: tuple[tuple[str, Any], ...] = ()
