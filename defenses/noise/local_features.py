"""Laplace or Gaussian noise on clipped feature rows, at the client and before anything is computed from them.

A row is scaled down to norm at most ``clip`` (L1 for Laplace, L2 for Gaussian noise), so another row in its place moves
it by at most ``2 clip``; every entry gets noise calibrated to that. The noise is as strong as local privacy must have
it: its norm grows with the number of features, and sums over neighbours average little of it out.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.noise.randomised_rows import LocalSession, nothing_sent
from fglaudit.facts import ROWS, Fact
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.privacy.accounting import Relation, check_budget
from fglaudit.privacy.mechanism import Distribution, Mechanism, calibrated, check_clip, clip_fact, noise_fact
from fglaudit.privacy.strength import weaker_budget


class _Session(LocalSession):
    def __init__(self, context: Context, mechanism: Mechanism, promise: Guarantee) -> None:
        super().__init__(context, promise)
        self.mechanism = mechanism

    def facts(self) -> tuple[Fact, ...]:
        return clip_fact(self.mechanism, ROWS, per="row"), noise_fact(self.mechanism, ROWS)

    def randomised(self, rows: Tensor, rng: torch.Generator) -> Tensor:
        return self.mechanism.with_noise(self.mechanism.clipped(rows), rng)


@dataclass(frozen=True)
class LocalFeatures(Defense):
    """Clip every feature row and add noise to it before it is used at all. Works with every protocol.

    Attributes:
        mechanism: "gaussian" or "laplace".
        epsilon, delta: of all that is ever sent about one node's features; delta = 0 only for Laplace noise.
        clip: norm to which a row is scaled down, L2 for Gaussian and L1 for Laplace noise.
    """

    name: ClassVar[str] = "local-features"
    shown: ClassVar[tuple[str, ...]] = ("mechanism", "epsilon", "clip")

    mechanism: Distribution = "laplace"
    epsilon: float = 8.0
    delta: float = 0.0
    clip: float = 1.0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, pure=self.mechanism == "laplace")
        check_clip(self.clip)

    def unsupported(self, context: Context) -> str | None:
        return nothing_sent(context)

    def weakened(self, factor: float) -> LocalFeatures:
        """Return it with more epsilon. The clip stays: it scales whole rows, and the noise grows with it."""
        return dataclasses.replace(self, epsilon=weaker_budget(self.epsilon, factor))

    def bind(self, context: Context) -> DefenseSession:
        rows = context.rows_per_node
        mechanism = calibrated(
            self.mechanism, self.clip, Relation.REPLACE, epsilon=self.epsilon, delta=self.delta, releases=rows
        )
        norm = mechanism.norm.upper()
        promise = Guarantee(
            mechanism=(
                f"{self.mechanism} scale={mechanism.scale:.4g} on feature rows, clipped to {norm} norm {self.clip:g}"
            ),
            epsilon_claimed=self.epsilon,
            epsilon_accounted=mechanism.epsilon(self.delta, rows),
            delta=self.delta,
            unit="node",
            adjacency=Relation.REPLACE.of("one node's features"),
            relation=Relation.REPLACE,
            releases=rows,
        )
        return _Session(context, mechanism, promise)
